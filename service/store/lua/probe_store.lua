-- Shows that this Redis runs our scripts and is one to write to (no replica, no failing disk). A full one passes, by
-- the deletion that comes first: it issues nothing, but revocation works there, and must stay reachable.
-- KEYS     probe_key
-- ARGV     ttl_ms
-- RETURNS  ready
-- CLAUSES  none
local probe_key = KEYS[1]
local ttl_ms = tonumber(ARGV[1])

redis.call('DEL', probe_key)
redis.call('SET', probe_key, '1', 'PX', ttl_ms)
return { 'ready' }
