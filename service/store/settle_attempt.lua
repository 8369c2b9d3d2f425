-- Releases a reservation, or turns it into a failed check. Each failure extends the life of its counter by the window
-- divided by the limit. A counter that reaches its limit thus expires one window after its first failure. A counter
-- with a single failure expires soon, so that names and addresses which strangers make up do not occupy memory for a
-- whole window. The failures of one user name have a counter for each origin. The console finds them in a hash with the
-- limit and origin of each, since the names of keys tell no origin.
-- KEYS     counters… (one or more; the guard key is behind them)
-- DERIVED  leases, origins of a user name
-- ARGV     outcome ("failed" or "passed") limits… (a count, window_ms and the origin for each counter)
-- RETURNS  settled
-- CLAUSES  RFC 6749 §2.3.1, §4.3.2, §10.10

local MAX_ORIGINS = 500

local leases = {}
for i, counter in ipairs(counters) do leases[i] = 'lease:' .. counter end
local under_way, left = redis.call('MGET', unpack(leases)), {}
-- The first key never exists. A full Redis accepts a deletion, and then also the small writes below.
local ended = { leases[1] .. ':none' }
for i, lease in ipairs(leases) do
  left[i] = tonumber(under_way[i] or 0) - 1
  if left[i] <= 0 then ended[#ended + 1] = lease end
end
redis.call('DEL', unpack(ended))
for i, counter in ipairs(counters) do
  if left[i] > 0 then redis.call('SET', leases[i], left[i], 'KEEPTTL') end
  if outcome == 'failed' then
    local count, window_ms = tonumber(limits[3 * i - 2]), tonumber(limits[3 * i - 1])
    local lives_ms = math.max(0, redis.call('PTTL', counter)) + math.ceil(window_ms / count)
    redis.call('INCR', counter)
    redis.call('PEXPIRE', counter, math.min(window_ms, lives_ms))
  end
end
local username_key, longest_ms = counters[1]:match('^login:{%w+}:[%w_-]+'), 0
if username_key and outcome == 'failed' then
  local origins_key = username_key .. ':origins'
  -- The usual limits allow fewer origins. With wider ones the list begins anew, because it must stay short.
  if #redis.call('HGETALL', origins_key) >= 2 * MAX_ORIGINS then redis.call('DEL', origins_key) end
  for i, counter in ipairs(counters) do
    redis.call('HSET', origins_key, counter, limits[3 * i - 2] .. ' ' .. limits[3 * i])
  end
  local listed = redis.call('HGETALL', origins_key)
  for i, counter in ipairs(listed) do
    local lives_ms = i % 2 == 1 and redis.call('PTTL', counter) or 0
    if lives_ms < 0 then redis.call('HDEL', origins_key, counter) end
    longest_ms = math.max(longest_ms, lives_ms)
  end
  redis.call('PEXPIRE', origins_key, longest_ms)
end
return { 'settled' }
