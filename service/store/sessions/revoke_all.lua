-- Runs one bounded step of a revokeAll, for one user or several of one shard.
--
-- What an interrupted revokeAll left in the key `revoked` is deleted first. Then the mark is set to now or to an
-- earlier time, and in the same step the index is renamed to `revoked`, so that the deletion never meets members that
-- are added later. From then on every script treats records created at or before the mark as revoked. A mark that does
-- not cover everything copies the index instead, with a member that tells the limit: `limit:` for an earlier time, or
-- `limit:` and the sid of one login at an identity provider. Such a login's mark also covers records whose login has no
-- sid.
--
-- Each step deletes the records whose members are in the key `revoked`: families with their access tokens, codes,
-- consents and browser sessions. If the key has a member that tells a limit, only records that a mark covers are
-- deleted, also from the index. The kept member stays. A member whose record cannot be read stays, too: its score tells
-- later steps to pass it over, until the user is marked again. If a failover has lost the mark of an earlier step,
-- nothing of that user is deleted, the verdict is `lost`, and the caller must begin again.
-- KEYS     user_keys… (for each user the keys mark, index and revoked)
-- DERIVED  marks, families, access tokens, codes, consents, browser sessions named by the members, tombstones
-- ARGV     most_keys:number kept_member (not deleted; may be empty) until_ms:number (0 for now)
--          least_lifetime_ms:number sid (empty: everything) reason
--          marks… (for each user the time of the mark; 0: the user must be marked)
-- RETURNS  finished | nothing (was alive) | more | unreadable (for each user, with the mark as in ARGV) | lost
-- CLAUSES  SPEC §3, §4.4
-- USES     records sessions/families

-- Scores in the key `revoked`. Those of members that a step may delete are not negative.
local LIMIT, UNREADABLE = '-1', '-2'
-- The lines of each kind of record that have the user_digest and the sid.
local LINES = { code = { 4, 12 }, consent = { 5, 8 }, browser = { 4, 12 } }

local now_ms, steps, answer = read_clock(), 0, {}
local is_earlier = until_ms > 0 and until_ms < now_ms
local limit = (is_earlier or sid ~= '') and 'limit:' .. sid

-- Returns true if no mark covers the record. Another call may have set a later mark. A mark for now covers all that was
-- set aside with it, even a record that looks younger because the clock was set back. It sets no limit.
local function is_spared(ended_sid, created_ms, user_digest, of_sid)
  if not ended_sid or ended_sid ~= '' and (of_sid == ended_sid or of_sid == '-') then return false end
  return created_ms > read_mark(user_digest, of_sid)
end

-- Removes a member, and deletes its record unless that is spared. Returns how many access tokens were deleted.
local function end_member(member, ended_sid, index_key, revoked_key)
  local kind, digest = string.match(member, '^(%l+):(.+)$')
  local key, lines = key_of(kind, digest), LINES[kind]
  local family = not lines and read_family(key)
  local text = lines and ended_sid and redis.call('GET', key)
  local line = text and read_lines(text, 'a ' .. kind, lines[2])
  local spared = family and is_spared(ended_sid, family.created_ms, family.user_digest, family.sid)
    or line and is_spared(ended_sid, line[2], line[lines[1]], line[lines[2]])
  -- The end of a family also removes its member from both keys.
  if family and not spared then return end_family(family, digest, reason, now_ms) end
  redis.call('ZREM', revoked_key, member)
  if not spared then
    redis.call('ZREM', index_key, member)
    redis.call('DEL', key)
  end
  return 0
end

-- Deletes what the members of `revoked` name. Returns true if only the kept and unreadable members are left.
local function delete(index_key, revoked_key)
  local most = string.format('%d', most_keys + 3)
  local members = redis.call('ZRANGE', revoked_key, LIMIT, '+inf', 'BYSCORE', 'LIMIT', '0', most)
  local ended_sid = string.match(members[1] or '', '^limit:(.*)')
  for i = ended_sid and 2 or 1, #members do
    if members[i] ~= kept_member then
      if steps >= most_keys then return false end
      local is_read, tokens = pcall(end_member, members[i], ended_sid, index_key, revoked_key)
      if not is_read then
        redis.call('ZREM', revoked_key, '')  -- There is no such member: a full Redis accepts this, and then also ZADD.
        redis.call('ZADD', revoked_key, UNREADABLE, members[i])
      end
      steps = steps + 1 + (is_read and tokens or 0)
    end
  end
  if ended_sid and redis.call('ZCARD', revoked_key) == 1 then redis.call('DEL', revoked_key) end
  return true
end

-- Sets the mark, and sets aside what it covers. Returns the time of the mark, and true if something of the user was
-- alive now or before an earlier mark. Such a mark lives longer, so a repeated revokeAll is told the same as the first.
local function mark(mark_key, index_key, revoked_key)
  local longest, left_ms = redis.call('ZRANGE', index_key, '-1', '-1', 'WITHSCORES'), redis.call('PTTL', revoked_key)
  local lifetime_ms = string.format('%d', math.max(
    least_lifetime_ms, left_ms, redis.call('PTTL', mark_key), longest[2] and longest[2] - now_ms + least_lifetime_ms or 0
  ))
  -- A second mark in the same millisecond must cover records created between the two. A mark for an earlier time never
  -- lowers the present mark. A mark for a future time counts as a mark for now.
  local mark_keys = { mark_key, sid ~= '' and string.sub(mark_key, 1, -#sid - 1) .. '-' or nil }
  local earlier_ms = 0
  for _, key in ipairs(mark_keys) do earlier_ms = math.max(earlier_ms, read_mark_at(key)) end
  local marked_ms = is_earlier and math.max(until_ms, earlier_ms) or math.max(now_ms, earlier_ms + 1)
  -- The removal comes first: a full Redis accepts it, and then also the writes after it.
  redis.call('ZREMRANGEBYSCORE', revoked_key, LIMIT, LIMIT)
  for _, key in ipairs(mark_keys) do
    redis.call('SET', key, string.format('%d', marked_ms), 'PX', sid ~= '' and least_lifetime_ms or lifetime_ms)
  end
  if limit or left_ms ~= -2 then
    redis.call('ZUNIONSTORE', revoked_key, '2', revoked_key, index_key, 'WEIGHTS', '0', '1', 'AGGREGATE', 'MAX')
    if limit then redis.call('ZADD', revoked_key, LIMIT, limit) else redis.call('DEL', index_key) end
  elseif longest[2] then
    redis.call('RENAME', index_key, revoked_key)
  end
  redis.call('PEXPIRE', revoked_key, lifetime_ms)
  return marked_ms, lifetime_ms + 0 > least_lifetime_ms
end

for i, given in ipairs(marks) do
  local mark_key, index_key, revoked_key = unpack(user_keys, 3 * i - 2, 3 * i)
  local marked_ms, was_alive = given + 0, true
  if marked_ms > 0 and read_mark_at(mark_key) < marked_ms then return { 'lost' } end
  if marked_ms == 0 and delete(index_key, revoked_key) then
    marked_ms, was_alive = mark(mark_key, index_key, revoked_key)
  end
  local is_done = marked_ms > 0 and delete(index_key, revoked_key)
  local unreadable = redis.call('ZRANGE', revoked_key, UNREADABLE, UNREADABLE, 'BYSCORE')[1]
  answer[2 * i - 1] = not is_done and 'more' or unreadable and 'unreadable' or was_alive and 'finished' or 'nothing'
  answer[2 * i] = marked_ms
end
return { unpack(answer) }
