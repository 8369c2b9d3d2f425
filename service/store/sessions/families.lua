-- Defines how a family is read, written, kept alive and ended. Its record is lines, which records.lua describes.

local MOST_TOKENS = 100
-- More than REPLAYS_OF_A_PATTERN in token.py, so that later replays do not repeat the event.
local REPLAYS_COUNTED = 6
local GRACE_SLICES = 64

local FAMILY = '^(2\n(%d+)\n%l\n(%d)\n' .. string.rep('([^\n]*)\n', 4) .. '(realm:[^\n]*)\n[^\n]*\n([^\n]*)\n)'
  .. string.rep('(%d+)\n', 5) .. '([^\n]*)\n' .. string.rep('(%d+)([^\n]*)\n', 2) .. '([^\n]*)(.*)$'
local TOKEN = ' (%d+):(%-?%d+):(%d+):([%w_-]+)()'
local FIRST_TOKEN = '^' .. TOKEN
local SPENT = ' (%d+):(%-?%d+)'

-- Returns the family, or nil if there is none.
local function read_family(family_key)
  local text = redis.call('GET', family_key)
  if not text then return nil end
  local fixed_lines, created_ms, secret_used, user_digest, subject, client_id, username, scope, sid, expires_ms,
    access_until_ms, indexed_until_ms, head, oldest, replayed, tokens, token_text, replays, replay_text, spent_times,
    newer_lines =
    string.match(text, FAMILY)
  if not fixed_lines then refuse_record('a session') end
  return {
    fixed_lines = fixed_lines, created_ms = created_ms + 0, secret_used = secret_used, user_digest = user_digest,
    subject = subject, client_id = client_id, username = username, scope = scope, sid = sid, expires_ms = expires_ms + 0,
    access_until_ms = access_until_ms + 0, indexed_until_ms = indexed_until_ms + 0, head = head + 0,
    oldest = oldest + 0, replayed = replayed,
    tokens = { count = tokens + 0, text = token_text }, replay_tokens = { count = replays + 0, text = replay_text },
    spent_times = spent_times, newer_lines = newer_lines,
  }
end

local MAX_LOOK_AHEAD_MS = 86400000

-- Writes the record, with the lines of a newer version behind its own. It lives until the family and its last access
-- token have ended. Its member in the user's index lives longer by up to a look-ahead, a tenth of the lifetime of a
-- refresh token and at most a day, so that most refreshes do not write the index.
local function write_family(family, family_digest, now_ms, refresh_ttl_ms)
  local lives_until_ms = math.max(family.expires_ms, family.access_until_ms)
  local longest_ms = lives_until_ms + math.min(MAX_LOOK_AHEAD_MS, math.floor(refresh_ttl_ms / 10))
  if family.indexed_until_ms < lives_until_ms or family.indexed_until_ms > longest_ms then
    family.indexed_until_ms = longest_ms
    add_member(family.user_digest, 'family:' .. family_digest, longest_ms, now_ms)
  end
  local record = family.fixed_lines .. string.format('%d\n%d\n%d\n%d\n%d\n%s\n%d%s\n%d%s\n', family.expires_ms,
    family.access_until_ms, family.indexed_until_ms, family.head, family.oldest, family.replayed, family.tokens.count,
    family.tokens.text, family.replay_tokens.count, family.replay_tokens.text) .. family.spent_times .. family.newer_lines
  redis.call('SET', key_of('family', family_digest), record, 'PX', string.format('%d', lives_until_ms - now_ms))
end

-- Writes an access token, and appends it to one of the family's lists. Returns its lifetime in ms.
local function add_access_token(family, list, family_digest, digest, scope, now_ms, ttl_ms, generation)
  local lives_ms = math.min(ttl_ms, family.expires_ms - now_ms)
  local record = string.format('2\n%d\n%d\n', now_ms, now_ms + lives_ms) .. family_digest .. '\n' .. family.client_id
    .. '\n' .. family.subject .. '\n' .. family.username .. '\n' .. scope
  redis.call('SET', key_of('access', digest), record, 'PX', string.format('%d', lives_ms))
  family.access_until_ms = math.max(family.access_until_ms, now_ms + lives_ms)
  list.count = list.count + 1
  list.text = list.text .. string.format(' %d:%d:%d:', generation, now_ms - family.created_ms, lives_ms) .. digest
  return lives_ms
end

-- Returns when this generation was spent, or nil if that is longer ago than the record tells. A generation without an
-- entry, whose time was thinned out or which Redis lost in a failover, has the time of the next one with an entry. If
-- the clock was set back, an earlier generation may have a later time, which then counts.
local function find_spent_ms(family, generation)
  if generation < family.oldest then return nil end
  local latest_ms = -math.huge
  for each, ms in string.gmatch(family.spent_times .. family.tokens.text, SPENT) do
    latest_ms = math.max(latest_ms, ms)
    if each + 0 >= generation then return family.created_ms + latest_ms end
  end
end

-- Counts a replay of the generation. Returns how many generations in a row were replayed, or 0 if this generation was
-- also the last one replayed, and how often this generation was replayed with no other in between.
local function count_replay(family, generation)
  local last, streak, times = string.match(family.replayed, '^(%d+):(%d+):(%d+)$')
  local is_same = last and generation == last + 0
  times = is_same and math.min(times + 1, REPLAYS_COUNTED) or 1
  streak = is_same and streak + 0 or last and generation == last + 1 and streak + 1 or 1
  family.replayed = string.format('%d:%d:%d', generation, streak, times)
  return is_same and 0 or streak, times
end

-- Keeps the time of a token that leaves its list. Of the times within one slice of the grace, the latest is kept. Those
-- that the grace no longer covers are forgotten. Generations ascend from `oldest` on, through the times and the tokens.
local function keep_time(family, generation, issued, now_ms, grace_ms)
  local kept, slice, width = {}, nil, math.ceil(grace_ms / GRACE_SLICES)
  for each, ms in string.gmatch(family.spent_times .. ' ' .. generation .. ':' .. issued, SPENT) do
    if now_ms - family.created_ms - ms >= grace_ms then
      family.oldest = each + 1
    else
      kept[math.floor(ms / width) == slice and #kept or #kept + 1] = ' ' .. each .. ':' .. ms
      slice = math.floor(ms / width)
    end
  end
  family.spent_times = table.concat(kept)
end

-- Removes from the front of a list the access tokens that have expired, and those that are more than MOST_TOKENS.
-- Deletes their keys, too: tokens above the limit are still live, and Redis keeps an expired one if its clock was set
-- back.
local function forget_tokens(family, list, now_ms, grace_ms)
  local start, keys = 1, {}
  while true do
    local generation, issued, lives, digest, after = string.match(list.text, FIRST_TOKEN, start)
    if not digest or list.count <= MOST_TOKENS and now_ms - family.created_ms < issued + lives then break end
    if list == family.tokens then keep_time(family, generation, issued, now_ms, grace_ms) end
    keys[#keys + 1] = key_of('access', digest)
    list.count, start = list.count - 1, after
  end
  if #keys > 0 then redis.call('DEL', unpack(keys)) end
  list.text = string.sub(list.text, start)
end

-- Returns the end of the family's life, limited by its maximum age, which no refresh extends. An age of 0 means no
-- limit.
local function cap_lifetime(created_ms, expires_ms, max_age_ms)
  return max_age_ms > 0 and math.min(expires_ms, created_ms + max_age_ms) or expires_ms
end

-- Returns the first word of `wanted` that is not in `allowed`, or nil.
local function find_excess(allowed, wanted)
  if allowed == wanted then return nil end
  allowed = ' ' .. allowed .. ' '
  for word in string.gmatch(wanted, '%S+') do
    if not string.find(allowed, ' ' .. word .. ' ', 1, true) then return word end
  end
end

local TOMBSTONE_MS = '86400000'

-- Ends a family. A deletion comes first: a full Redis accepts it, and after it every write of the script, so also the
-- tombstone. The family's record is deleted last: if the script ends half-way, a repeated call finds there what is
-- left. `replay` is the lines presented and spent_ms of the tombstone. Returns how many access tokens the record names.
local function end_family(family, family_digest, reason, now_ms, replay)
  local text, keys = family.tokens.text .. family.replay_tokens.text, {}
  for _, _, _, digest in string.gmatch(text, TOKEN) do keys[#keys + 1] = key_of('access', digest) end
  -- What is no token in a broken list could be one that would stay.
  if string.gsub(text, TOKEN, '') ~= '' or #keys ~= family.tokens.count + family.replay_tokens.count then
    refuse_record('a session')
  end
  if #keys > 0 then redis.call('DEL', unpack(keys)) end
  forget_member(family.user_digest, 'family:' .. family_digest)
  local tombstone = string.format('2\n%d\n%s\n%d\n', now_ms, reason, family.head) .. (replay or '\n')
    .. string.format('\n%d\n', family.created_ms)
    .. table.concat({ family.client_id, family.subject, family.username, family.scope }, '\n')
  redis.call('SET', key_of('ended', family_digest), tombstone, 'PX', TOMBSTONE_MS)
  redis.call('DEL', key_of('family', family_digest))
  return #keys
end
