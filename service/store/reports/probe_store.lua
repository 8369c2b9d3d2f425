-- Shows that this Redis runs our scripts and accepts writes: it is not a replica, and its disk works. A full Redis
-- passes, because the deletion comes first: no token can be issued there, but revocation works and must stay reachable.
-- KEYS     probe_key
-- ARGV     ttl_ms:number
-- RETURNS  ready
-- CLAUSES  none

redis.call('DEL', probe_key)
redis.call('SET', probe_key, '1', 'PX', ttl_ms)
return { 'ready' }
