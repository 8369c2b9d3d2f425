-- Acquires a lock that is free, or that this holder has already: the answer to its first attempt may be lost.
-- KEYS     lock_key
-- ARGV     holder lifetime_ms
-- RETURNS  taken | held
-- CLAUSES  none
local lock_key = KEYS[1]
local holder, lifetime_ms = ARGV[1], tonumber(ARGV[2])

local other = redis.call('GET', lock_key)
if other and other ~= holder then return { 'held' } end
redis.call('SET', lock_key, holder, 'PX', lifetime_ms)
return { 'taken' }
