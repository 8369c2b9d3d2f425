-- Reserves one check of a secret on every counter, before the secret is looked at, so that parallel guesses count.
-- A counter holds the failed checks, its lease the checks under way. Failed checks alone exhaust a limit; checks under
-- way make others wait. An outage may break a check off; the lease expires some time after the last reservation, and
-- the checks that are still under way then are forgotten.
-- KEYS     counters (one or more; the guard key is behind them)
-- DERIVED  leases
-- ARGV     limits (a count and window_ms for each counter)
-- RETURNS  reserved | busy | exhausted wait_ms
-- CLAUSES  RFC 6749 §2.3.1, §4.3.2, §10.10
local counters = { unpack(KEYS, 1, #KEYS - 1) }
local limits = ARGV

-- Far longer than a check takes, its waiting in the queue included.
local LEASE_MS = 10000

local leases = {}
for i, counter in ipairs(counters) do leases[i] = 'lease:' .. counter end
-- The first write deletes nothing. After a deletion a full Redis takes these small writes, so that clients which must
-- prove themselves can still revoke there.
redis.call('DEL', leases[1] .. ':none')
local failed, under_way = redis.call('MGET', unpack(counters)), redis.call('MGET', unpack(leases))
for i, counter in ipairs(counters) do
  local count, failures = tonumber(limits[2 * i - 1]), tonumber(failed[i] or 0)
  if failures >= count then return { 'exhausted', math.max(1, redis.call('PTTL', counter)) } end
  if failures + tonumber(under_way[i] or 0) >= count then return { 'busy' } end
end
for i, lease in ipairs(leases) do
  redis.call('SET', lease, tonumber(under_way[i] or 0) + 1, 'PX', LEASE_MS)
end
return { 'reserved' }
