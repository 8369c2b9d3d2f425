-- Begins a revokeAll: from here on every script takes what the user has now, or had at an earlier time, for dead.
-- What the user has is set aside under a key of its own, so that the deletion never meets what comes later. Where an
-- earlier revokeAll was cut short its remainder comes first: the verdict then asks to be called again after that. The
-- kept member, which is deleted last of all, is no remainder; it moves along.
-- KEYS     mark_key index_key revoked_key
-- ARGV     kept_member until_ms (0 for now) least_lifetime_ms clock_offset_ms
-- RETURNS  marked | resumed
-- CLAUSES  SPEC §3, §4.4
local mark_key, index_key, revoked_key = KEYS[1], KEYS[2], KEYS[3]
local kept_member, until_ms = ARGV[1], tonumber(ARGV[2])
local least_lifetime_ms, clock_offset_ms = tonumber(ARGV[3]), tonumber(ARGV[4])

local now_ms = read_clock(clock_offset_ms)
local longest = redis.call('ZRANGE', index_key, -1, -1, 'WITHSCORES')
local lifetime_ms = math.max(
  least_lifetime_ms, redis.call('PTTL', mark_key), longest[2] and tonumber(longest[2]) - now_ms + least_lifetime_ms or 0
)
-- A second mark in one millisecond still covers what came between the two. A mark for an earlier time takes nothing back
-- from the one that is there; one for a time to come is one for now.
local earlier_ms = tonumber(redis.call('GET', mark_key) or '0')
local marked_ms = math.max(now_ms, earlier_ms + 1)
if until_ms > 0 and until_ms < now_ms then marked_ms = math.max(until_ms, earlier_ms) end
local kept_until_ms = kept_member ~= '' and redis.call('ZSCORE', revoked_key, kept_member)
local remainder = redis.call('ZCARD', revoked_key) - (kept_until_ms and 1 or 0)
-- A deletion first: after it a full Redis takes the small writes that follow.
redis.call('DEL', mark_key)
if remainder == 0 then
  if kept_until_ms then redis.call('ZADD', index_key, 'NX', kept_until_ms, kept_member) end
  if redis.call('EXISTS', index_key) == 1 then redis.call('RENAME', index_key, revoked_key) end
  redis.call('PEXPIRE', revoked_key, lifetime_ms)
end
redis.call('SET', mark_key, string.format('%.0f', marked_ms), 'PX', lifetime_ms)
return { remainder == 0 and 'marked' or 'resumed' }
