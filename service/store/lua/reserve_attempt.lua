-- Reserves one check of a secret on every counter, before the secret is looked at, so that parallel guesses count.
-- A counter holds the failed checks of its window and the checks under way; only failed ones exhaust a limit for good,
-- those under way make others wait. Of checks that an outage broke off nobody hears again: the lease of the counter
-- ends some time after the last reservation, and what is still under way then is forgotten.
-- KEYS     counters (one or more)
-- DERIVED  leases
-- ARGV     limits (a count and window_ms for each counter)
-- RETURNS  reserved | busy | exhausted wait_ms
-- CLAUSES  RFC 6749 §2.3.1, §4.3.2, §10.10
local counters = KEYS
local limits = ARGV

-- Far longer than a check takes, its waiting in the queue included.
local LEASE_MS = 10000

-- A deletion (of nothing) first: after it a full Redis takes these small writes, so that clients which must prove
-- themselves can still revoke there.
redis.call('HDEL', counters[1], '')
for i, counter in ipairs(counters) do
  local found = redis.call('HMGET', counter, 'failed', 'under_way')
  local failed, under_way = tonumber(found[1] or 0), tonumber(found[2] or 0)
  if under_way > 0 and redis.call('EXISTS', 'lease:' .. counter) == 0 then
    redis.call('HSET', counter, 'under_way', 0)
    under_way = 0
  end
  local count = tonumber(limits[2 * i - 1])
  if failed >= count then return { 'exhausted', math.max(1, redis.call('PTTL', counter)) } end
  if failed + under_way >= count then return { 'busy' } end
end
for i, counter in ipairs(counters) do
  local is_new = redis.call('EXISTS', counter) == 0
  redis.call('HINCRBY', counter, 'under_way', 1)
  redis.call('SET', 'lease:' .. counter, '1', 'PX', LEASE_MS)
  if is_new then redis.call('PEXPIRE', counter, limits[2 * i]) end
end
return { 'reserved' }
