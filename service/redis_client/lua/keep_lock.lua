-- Extends the lifetime of a lock if this holder has it. A lifetime of 0 releases the lock.
-- KEYS     lock_key
-- ARGV     holder lifetime_ms
-- RETURNS  kept | lost
-- CLAUSES  none
local lock_key = KEYS[1]
local holder, lifetime_ms = ARGV[1], tonumber(ARGV[2])

if redis.call('GET', lock_key) ~= holder then return { 'lost' } end
if lifetime_ms > 0 then redis.call('PEXPIRE', lock_key, lifetime_ms) else redis.call('DEL', lock_key) end
return { 'kept' }
