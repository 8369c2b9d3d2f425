-- Writes the fence key. The confirmation of this write confirms all earlier changes of the server as well.
-- KEYS     fence_key
-- ARGV     lifetime_ms:number
-- RETURNS  left
-- CLAUSES  none

-- PEXPIRE works even in a full Redis, but only if the key exists. Otherwise SET creates the key.
if redis.call('PEXPIRE', fence_key, lifetime_ms) == 0 then redis.call('SET', fence_key, '', 'PX', lifetime_ms) end
return { 'left' }
