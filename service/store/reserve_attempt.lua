-- Reserves one check of a secret on every counter before the secret is checked, so that parallel guesses count. A
-- counter holds the failed checks, and its lease the pending checks. Only failed checks exhaust a limit; pending checks
-- make other callers wait. An outage may abort a check without releasing it. A lease therefore expires some time after
-- its last reservation, and checks that are still pending then no longer count. If the counters are a user name's, the
-- result has the mark of a revokeAll of this user. A later mark then proves that it was set during the check.
-- KEYS     counters… (one or more; the guard key is behind them)
-- DERIVED  leases, mark
-- ARGV     limits… (a count and window_ms for each counter)
-- RETURNS  reserved marked_ms (0 without a mark) | busy | exhausted wait_ms
-- CLAUSES  RFC 6749 §2.3.1, §4.3.2, §10.10
-- USES     records

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
local of_user = string.match(counters[1], '^login:({%w+}:[%w_-]+)')
if of_user then counters_and_leases[#counters_and_leases + 1] = 'mark:' .. of_user end
local values, under_way = redis.call('MGET', unpack(counters_and_leases)), {}
for i, counter in ipairs(counters) do
  local count, failures = tonumber(limits[2 * i - 1]), tonumber(values[i] or 0)
  under_way[i] = tonumber(values[#counters + i] or 0)
  if failures >= count then return { 'exhausted', math.max(1, redis.call('PTTL', counter)) } end
  if failures + under_way[i] >= count then return { 'busy' } end
end
local marked_ms = tonumber(values[2 * #counters + 1] or 0) or refuse_record('a revokeAll')
for i, lease in ipairs(leases) do redis.call('SET', lease, under_way[i] + 1, 'PX', LEASE_MS) end
return { 'reserved', marked_ms }
