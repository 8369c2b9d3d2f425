-- Deletes a user's record together with the seed entry that it came from, so that a file with the user adds it again.
-- KEYS     user_key seed_key
-- ARGV     user_digest
-- RETURNS  removed
-- CLAUSES  SPEC §2.3

redis.call('DEL', user_key)
redis.call('HDEL', seed_key, user_digest)
return { 'removed' }
