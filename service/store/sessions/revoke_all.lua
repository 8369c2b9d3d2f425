-- Runs one bounded step of a revokeAll, for one user or several of one shard.
--
-- The first step of a user sets the mark to now or to an earlier time. From then on every script treats records created
-- at or before the mark as revoked. The index is renamed to the key `revoked`, so that the deletion never meets members
-- that are added later. A step that can end everything without it does not rename the index. If an interrupted
-- revokeAll left members in that key, the index stays, and once they are deleted the user must be marked again. The
-- kept member, which is deleted last of all, does not count as left; it is moved back to the index before the index is
-- renamed. A mark that does not cover everything copies the index instead, with a member that tells the limit: `until`
-- for an earlier time, or `sid:` and the sid of one login at an identity provider. Such a login's mark also covers
-- records whose login has no sid.
--
-- Each step deletes the records whose members are in the key `revoked`: families with their access tokens, codes,
-- consents and browser sessions. If the key has a member that tells a limit, only records that a mark covers are
-- deleted, also from the index. If a failover has lost the mark of an earlier step, nothing of that user is deleted, the
-- verdict is `lost`, and the caller must begin again.
-- KEYS     user_keys… (for each user the keys mark, index and revoked)
-- DERIVED  marks, families, access tokens, codes, consents, browser sessions named by the members, tombstones
-- ARGV     most_keys:number kept_member (not deleted; may be empty) until_ms:number (0 for now) least_lifetime_ms:number sid (empty: everything)
--          reason marks… (for each user the time of the mark; 0: the user must be marked)
-- RETURNS  finished | more marks (for each user, as in ARGV; negative: nothing is left) | lost
-- CLAUSES  SPEC §3, §4.4
-- USES     records sessions/families

local now_ms = read_clock()

-- Returns the member of the key `revoked` that limits what is to be ended, or nil if all of it is. Its score is 0.
local function find_limit(revoked_key)
  local first = redis.call('ZRANGE', revoked_key, '0', '0', 'WITHSCORES')
  return first[2] == '0' and first[1] or nil
end

-- Returns the time of the mark, the key whose members are to be deleted, and true if an interrupted revokeAll left these.
local function mark(mark_key, index_key, revoked_key)
  local longest = redis.call('ZRANGE', index_key, '-1', '-1', 'WITHSCORES')
  local lifetime_ms = math.max(
    least_lifetime_ms, redis.call('PTTL', mark_key), longest[2] and longest[2] - now_ms + least_lifetime_ms or 0
  )
  -- A second mark in the same millisecond must cover records created between the two. A mark for an earlier time never
  -- lowers the present mark. A mark for a future time counts as a mark for now.
  local mark_keys = { mark_key, sid ~= '' and string.sub(mark_key, 1, -#sid - 1) .. '-' or nil }
  local earlier_ms = 0
  for _, key in ipairs(mark_keys) do earlier_ms = math.max(earlier_ms, tonumber(redis.call('GET', key) or '0')) end
  local marked_ms = math.max(now_ms, earlier_ms + 1)
  local is_earlier = until_ms > 0 and until_ms < now_ms
  if is_earlier then marked_ms = math.max(until_ms, earlier_ms) end
  local remainder = redis.call('ZCARD', revoked_key)
  local limit = sid ~= '' and 'sid:' .. sid or is_earlier and 'until'
  local source_key = (limit or kept_member ~= '' or remainder > 0) and revoked_key or index_key
  local kept_until_ms = remainder > 0 and kept_member ~= '' and redis.call('ZSCORE', revoked_key, kept_member)
  if kept_until_ms then remainder = remainder - 1 end
  if remainder > 0 and find_limit(revoked_key) then remainder = remainder - 1 end
  -- The deletion comes first: a full Redis accepts it, and then also the small writes after it.
  redis.call('DEL', mark_key)
  local mark_lifetime_ms = string.format('%d', sid ~= '' and least_lifetime_ms or lifetime_ms)
  for _, key in ipairs(mark_keys) do redis.call('SET', key, string.format('%d', marked_ms), 'PX', mark_lifetime_ms) end
  if remainder == 0 and source_key == revoked_key then
    if kept_until_ms then redis.call('ZADD', index_key, 'NX', kept_until_ms, kept_member) end
    if longest[2] or kept_until_ms then
      if limit then
        local scores = redis.call('ZRANGE', index_key, '0', '-1', 'WITHSCORES')
        redis.call('DEL', revoked_key)
        redis.call('ZADD', revoked_key, '0', limit)
        for i = 1, #scores, 2 do redis.call('ZADD', revoked_key, scores[i + 1], scores[i]) end
      else
        redis.call('RENAME', index_key, revoked_key)
      end
    end
    redis.call('PEXPIRE', revoked_key, string.format('%d', lifetime_ms))
  end
  return marked_ms, source_key, remainder > 0
end

-- Returns how many keys were deleted in addition to the record's own, or nil if the record may stay.
local function end_covered(member, limit, is_covered)
  local kind, digest = string.match(member, '^(%l+):(.+)$')
  if kind == 'family' then
    local family = read_family(key_of('family', digest))
    if not family then return 0 end
    if limit and not is_covered(family.created_ms, family.subject, family.sid) then return nil end
    return end_family(family, digest, reason, now_ms)
  end
  local names = { code = key_of('code', digest), consent = key_of('consent', digest), browser = key_of('browser', digest) }
  local text = limit and redis.call('GET', names[kind])
  if text then
    local place = ({ code = { 4, 10 }, consent = { 5, 8 }, browser = { 4, 9 } })[kind]
    local line = read_lines(text, 'a ' .. kind, place[2])
    if not is_covered(line[2], line[place[1]], line[place[2]]) then return nil end
  end
  redis.call('DEL', names[kind])
  return 0
end

local steps = 0

-- Deletes what the members of the key `source` name. Returns true if nothing is left.
local function delete(source_key, mark_key, index_key, revoked_key)
  local limit = source_key == revoked_key and find_limit(revoked_key)
  local ended_sid = limit and string.match(limit, '^sid:(.*)')

  -- Returns true if a mark covers the record. Another call may have set a later mark. A mark for now covers all that was
  -- set aside with it, even a record that looks younger because the clock was set back. It sets no limit.
  local function is_covered(created_ms, subject, of_sid)
    return ended_sid and (of_sid == ended_sid or of_sid == '-') or created_ms <= read_mark(subject, of_sid)
  end

  for _, member in ipairs(redis.call('ZRANGE', source_key, '0', string.format('%d', most_keys + 1))) do
    if steps >= most_keys then break end
    if member ~= kept_member and member ~= limit then
      local deleted = end_covered(member, limit, is_covered)
      -- The end of a family with tokens has removed the member from both keys.
      if (deleted or 0) == 0 then
        redis.call('ZREM', source_key, member)
        if limit and deleted then redis.call('ZREM', index_key, member) end
      end
      steps = steps + 1 + (deleted or 0)
    end
  end
  local kept = kept_member ~= '' and redis.call('ZSCORE', source_key, kept_member)
  local left = redis.call('ZCARD', source_key) - (kept and 1 or 0) - (limit and 1 or 0)
  if left > 0 and source_key == index_key then
    redis.call('RENAME', index_key, revoked_key)
    redis.call('PEXPIRE', revoked_key, redis.call('PTTL', mark_key))
  end
  if left == 0 and limit and not kept then redis.call('DEL', revoked_key) end
  return left == 0
end

local verdict = 'finished'
for i = 1, #user_keys / 3 do
  local mark_key, index_key, revoked_key = unpack(user_keys, 3 * i - 2, 3 * i)
  local marked_ms, source_key, has_remainder = marks[i] + 0, revoked_key, false
  if marked_ms == 0 then
    marked_ms, source_key, has_remainder = mark(mark_key, index_key, revoked_key)
  elseif tonumber(redis.call('GET', mark_key) or '0') < marked_ms then
    verdict = 'lost'
    break
  end
  local is_empty = delete(source_key, mark_key, index_key, revoked_key)
  if has_remainder or not is_empty then verdict = 'more' end
  marks[i] = has_remainder and 0 or is_empty and -marked_ms or marked_ms
end
return { verdict, unpack(marks, 1, #user_keys / 3) }
