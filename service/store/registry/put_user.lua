-- Writes a user's record under the given revision together with the seed entry that it comes from.
-- KEYS     user_key seed_key
-- ARGV     user_digest record revision applied (empty: the entry in Redis stays)
-- RETURNS  written
-- CLAUSES  SPEC §2.3

redis.call('HSET', user_key, 'record', record, 'revision', revision)
if applied ~= '' then redis.call('HSET', seed_key, user_digest, applied) end
return { 'written' }
