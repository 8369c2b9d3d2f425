-- Writes a user's record under a new revision together with the seed entry that it comes from.
-- KEYS     user_key seed_key
-- ARGV     subject record revision applied (empty: the entry in Redis stays)
-- RETURNS  written
-- CLAUSES  SPEC §2.3
local user_key, seed_key = KEYS[1], KEYS[2]
local subject, record, revision, applied = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

redis.call('HSET', user_key, 'record', record, 'revision', revision)
if applied ~= '' then redis.call('HSET', seed_key, subject, applied) end
return { 'written' }
