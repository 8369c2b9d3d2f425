-- Releases a lock if this holder has it.
-- KEYS     lock_key
-- ARGV     holder
-- RETURNS  released | lost
-- CLAUSES  none
local lock_key = KEYS[1]
local holder = ARGV[1]

if redis.call('GET', lock_key) ~= holder then return { 'lost' } end
redis.call('DEL', lock_key)
return { 'released' }
