-- Shows that this Redis runs our scripts and takes writes. The deletion comes first, so that a full one passes:
-- there revocation still works, and must.
-- KEYS     probe_key
-- ARGV     ttl_ms
-- RETURNS  ready
-- CLAUSES  none
local probe_key = KEYS[1]
local ttl_ms = tonumber(ARGV[1])

redis.call('DEL', probe_key)
redis.call('SET', probe_key, '1', 'PX', ttl_ms)
return { 'ready' }
