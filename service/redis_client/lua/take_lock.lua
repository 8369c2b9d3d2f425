-- Takes a lock that nobody holds. Who asks again, not knowing what became of the first time, has it as well.
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
