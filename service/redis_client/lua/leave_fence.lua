-- Writes the fence key. The confirmation of this write confirms all earlier changes of the server as well.
-- KEYS     fence_key
-- ARGV     lifetime_ms
-- RETURNS  left
-- CLAUSES  none
local fence_key = KEYS[1]
local lifetime_ms = tonumber(ARGV[1])

-- PEXPIRE works even in a full Redis, but only if the key exists. Otherwise SET creates the key.
if redis.call('PEXPIRE', fence_key, lifetime_ms) == 0 then redis.call('SET', fence_key, '', 'PX', lifetime_ms) end
return { 'left' }
