-- Extends the lifetime of a lock if this holder has it. A lifetime of 0 releases the lock.
-- KEYS     lock_key
-- ARGV     holder lifetime_ms:number
-- RETURNS  kept | lost
-- CLAUSES  none

if redis.call('GET', lock_key) ~= holder then return { 'lost' } end
if lifetime_ms > 0 then redis.call('PEXPIRE', lock_key, lifetime_ms) else redis.call('DEL', lock_key) end
return { 'kept' }
