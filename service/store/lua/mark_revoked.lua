-- Begins a revokeAll: sets the mark to now or to an earlier time. From then on every script treats records created at
-- or before the mark as revoked. The index is renamed to the key `revoked`, so that the deletion never meets members
-- that are added later. If an interrupted revokeAll left members in that key, the index stays and the verdict is
-- `resumed`. The caller then deletes those members and calls this script again. The kept member, which is deleted last
-- of all, does not count as left; it is moved back to the index before the index is renamed. A mark that does not cover
-- everything copies the index instead, with a member that tells the limit: `until` for an earlier time, or `sid:` and
-- the sid of one login at an identity provider. Such a login's mark also covers records whose login has no sid.
-- KEYS     mark_key index_key revoked_key
-- DERIVED  the mark of logins without a sid
-- ARGV     kept_member until_ms (0 for now) least_lifetime_ms sid (empty: everything)
-- RETURNS  marked marked_ms | resumed marked_ms
-- CLAUSES  SPEC §3, §4.4
-- USES     records
local mark_key, index_key, revoked_key = KEYS[1], KEYS[2], KEYS[3]
local kept_member, until_ms = ARGV[1], tonumber(ARGV[2])
local least_lifetime_ms, sid = tonumber(ARGV[3]), ARGV[4]

local now_ms = read_clock()
local longest = redis.call('ZRANGE', index_key, -1, -1, 'WITHSCORES')
local lifetime_ms = math.max(
  least_lifetime_ms, redis.call('PTTL', mark_key), longest[2] and tonumber(longest[2]) - now_ms + least_lifetime_ms or 0
)
-- A second mark in the same millisecond must cover records created between the two. A mark for an earlier time never
-- lowers the present mark. A mark for a future time counts as a mark for now.
local mark_keys = { mark_key, sid ~= '' and string.sub(mark_key, 1, -#sid - 1) .. '-' or nil }
local earlier_ms = 0
for _, key in ipairs(mark_keys) do earlier_ms = math.max(earlier_ms, tonumber(redis.call('GET', key) or '0')) end
local marked_ms = math.max(now_ms, earlier_ms + 1)
local is_earlier = until_ms > 0 and until_ms < now_ms
if is_earlier then marked_ms = math.max(until_ms, earlier_ms) end
local kept_until_ms = kept_member ~= '' and redis.call('ZSCORE', revoked_key, kept_member)
local limited = find_limit(revoked_key) and 1 or 0
local remainder = redis.call('ZCARD', revoked_key) - (kept_until_ms and 1 or 0) - limited
-- The deletion comes first: a full Redis accepts it, and then also the small writes after it.
redis.call('DEL', mark_key)
if remainder == 0 then
  if kept_until_ms then redis.call('ZADD', index_key, 'NX', kept_until_ms, kept_member) end
  if redis.call('EXISTS', index_key) == 1 then
    local limit = sid ~= '' and 'sid:' .. sid or is_earlier and 'until'
    if limit then
      local scores = redis.call('ZRANGE', index_key, '0', '-1', 'WITHSCORES')
      redis.call('DEL', revoked_key)
      redis.call('ZADD', revoked_key, '0', limit)
      for i = 1, #scores, 2 do redis.call('ZADD', revoked_key, scores[i + 1], scores[i]) end
    else
      redis.call('RENAME', index_key, revoked_key)
    end
  end
  redis.call('PEXPIRE', revoked_key, lifetime_ms)
end
for _, key in ipairs(mark_keys) do
  redis.call('SET', key, string.format('%d', marked_ms), 'PX', sid ~= '' and least_lifetime_ms or lifetime_ms)
end
return { remainder == 0 and 'marked' or 'resumed', marked_ms }
