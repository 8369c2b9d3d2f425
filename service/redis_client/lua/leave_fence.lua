-- Changes something, so that who has this confirmed knows that all which the server did before it is confirmed as well.
-- KEYS     fence_key
-- ARGV     lifetime_ms
-- RETURNS  left
-- CLAUSES  none
local fence_key = KEYS[1]
local lifetime_ms = tonumber(ARGV[1])

-- Where it is there already even a full Redis takes this.
if redis.call('PEXPIRE', fence_key, lifetime_ms) == 0 then redis.call('SET', fence_key, '', 'PX', lifetime_ms) end
return { 'left' }
