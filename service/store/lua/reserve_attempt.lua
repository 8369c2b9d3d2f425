-- Reserves one check of a secret on every counter before the secret is checked, so that parallel guesses count.
-- A counter holds the failed checks, and its lease the pending checks. Only failed checks exhaust a limit; pending
-- checks make other callers wait. An outage may abort a check without releasing it. A lease therefore expires some time
-- after its last reservation, and checks that are still pending then no longer count.
-- KEYS     counters (one or more; the guard key is behind them)
-- DERIVED  leases
-- ARGV     limits (a count and window_ms for each counter)
-- RETURNS  reserved | busy | exhausted wait_ms
-- CLAUSES  RFC 6749 §2.3.1, §4.3.2, §10.10
local counters = { unpack(KEYS, 1, #KEYS - 1) }
local limits = ARGV

-- The lifetime of a lease. It is far longer than a check takes, including its wait in the queue.
local LEASE_MS = 10000

local leases, counters_and_leases = {}, { unpack(counters) }
for i, counter in ipairs(counters) do
  leases[i] = 'lease:' .. counter
  counters_and_leases[#counters + i] = leases[i]
end
-- The key never exists. A full Redis accepts a deletion, and then also the small writes below, so that clients can
-- still authenticate there and revoke tokens.
redis.call('DEL', leases[1] .. ':none')
local values, under_way = redis.call('MGET', unpack(counters_and_leases)), {}
for i, counter in ipairs(counters) do
  local count, failures = tonumber(limits[2 * i - 1]), tonumber(values[i] or 0)
  under_way[i] = tonumber(values[#counters + i] or 0)
  if failures >= count then return { 'exhausted', math.max(1, redis.call('PTTL', counter)) } end
  if failures + under_way[i] >= count then return { 'busy' } end
end
for i, lease in ipairs(leases) do redis.call('SET', lease, under_way[i] + 1, 'PX', LEASE_MS) end
return { 'reserved' }
