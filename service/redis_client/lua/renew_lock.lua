-- Extends the lifetime of a lock if this holder has it.
-- KEYS     lock_key
-- ARGV     holder lifetime_ms
-- RETURNS  renewed | lost
-- CLAUSES  none
local lock_key = KEYS[1]
local holder, lifetime_ms = ARGV[1], tonumber(ARGV[2])

if redis.call('GET', lock_key) ~= holder then return { 'lost' } end
redis.call('PEXPIRE', lock_key, lifetime_ms)
return { 'renewed' }
