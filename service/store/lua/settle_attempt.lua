-- Gives a reservation back, or turns it into a failed check.
-- KEYS     counters (one or more)
-- DERIVED  leases
-- ARGV     outcome ("failed" or "passed"), windows_ms (one for each counter)
-- RETURNS  settled
-- CLAUSES  RFC 6749 §2.3.1, §4.3.2, §10.10
local counters = KEYS
local outcome = ARGV[1]
local windows_ms = { unpack(ARGV, 2) }

-- As in reserve_attempt.lua: works on a full Redis.
redis.call('HDEL', counters[1], '')
for i, counter in ipairs(counters) do
  local is_known = redis.call('EXISTS', counter) == 1
  local under_way = is_known and redis.call('HINCRBY', counter, 'under_way', -1) or 0
  if under_way < 0 then redis.call('HSET', counter, 'under_way', 0) end
  if under_way <= 0 then redis.call('DEL', 'lease:' .. counter) end
  if outcome == 'failed' then
    redis.call('HINCRBY', counter, 'failed', 1)
    -- The window may have passed while the check ran: the failure then opens the next one.
    if not is_known then redis.call('PEXPIRE', counter, windows_ms[i]) end
  elseif is_known then
    local left = redis.call('HMGET', counter, 'failed', 'under_way')
    if tonumber(left[1] or 0) == 0 and tonumber(left[2] or 0) == 0 then redis.call('DEL', counter) end
  end
end
return { 'settled' }
