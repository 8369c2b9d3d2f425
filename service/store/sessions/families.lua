-- Defines how a family is read, started, kept alive and ended.

local ACCESS_TOKENS_PER_FAMILY = 100
local DIGEST_WIDTH = 22

-- Returns a family from the values of its fields v, h, c, u and r, or nil if there is none.
local function parse_family(fixed, state, client_id, username, scope)
  if not fixed then return nil end
  if string.sub(fixed, 1, 2) ~= '2 ' then refuse_version('a session') end
  local created_ms, kept_in_ms, grant_type, secret_used, subject =
    string.match(fixed, '^2 (%d+) (%-?%d+) (%l) (%d) (%S+)$')
  local head, expires_in_ms, access_in_ms, oldest, replays, longest_s =
    string.match(state or '', '^(%d+) (%-?%d+) (%-?%d+) (%d+) (%d+) (%d+)$')
  if not (created_ms and head) then error('a session has a broken record') end
  return {
    created_ms = created_ms + 0, kept_until_ms = created_ms + kept_in_ms, grant_type = grant_type,
    secret_used = secret_used, subject = subject,
    head = head + 0, expires_ms = created_ms + expires_in_ms, access_until_ms = created_ms + access_in_ms,
    oldest = oldest + 0, replays = replays + 0, longest_s = longest_s + 0, client_id = client_id, username = username,
    scope = string.sub(scope, 1, 6) == 'realm:' and scope or 'realm:' .. string.gsub(scope, ' ', ' role:'),
  }
end

-- Returns the text of the field v.
local function format_fixed(family)
  return string.format('2 %d %d %s %s %s', family.created_ms, family.kept_until_ms - family.created_ms,
    family.grant_type, family.secret_used, family.subject)
end

-- Returns the text of the field h.
local function format_state(family)
  return string.format('%d %d %d %d %d %d', family.head, family.expires_ms - family.created_ms,
    family.access_until_ms - family.created_ms, family.oldest, family.replays, family.longest_s)
end

-- Returns the family without its other fields, and the values of two of these.
local function read_family(family_key, one_field, other_field)
  local values = redis.call('HMGET', family_key, one_field, other_field, 'v', 'h', 'c', 'u', 'r')
  return parse_family(unpack(values, 3)), values[1], values[2]
end

-- Returns the name of the field that holds the access token which this generation bought.
local function access_field_of(generation) return 'a' .. generation % ACCESS_TOKENS_PER_FAMILY end

local function format_entry(family, digest, ms, generation)
  return digest .. string.format('%d:%d', ms - family.created_ms, generation)
end

-- Returns the time (ms) and the generation of an entry.
local function parse_entry(family, entry)
  local ms, generation = string.match(entry, '^(%-?%d+):(%d+)$', DIGEST_WIDTH + 1)
  return family.created_ms + ms, generation + 0
end

local function access_key_of(entry) return key_of('access', string.sub(entry, 1, DIGEST_WIDTH)) end

-- Writes an access token of the family. Returns the time (ms) when the token expires.
local function add_access_token(family, family_digest, digest, scope, now_ms, ttl_ms)
  local expires_ms = math.min(now_ms + ttl_ms, family.expires_ms)
  local record = string.format('2\n%d\n%d\n', now_ms, expires_ms) .. family_digest .. '\n' .. family.client_id .. '\n'
    .. family.subject .. '\n' .. family.username .. '\n' .. scope
  redis.call('SET', key_of('access', digest), record, 'PX', string.format('%d', expires_ms - now_ms))
  family.access_until_ms = math.max(family.access_until_ms, expires_ms)
  family.longest_s = math.max(family.longest_s, math.ceil(ttl_ms / 1000))
  return expires_ms
end

-- Returns the end of the family's life, limited by its maximum age, which no refresh extends. An age of 0 means no limit.
local function cap_lifetime(created_ms, expires_ms, max_age_ms)
  return max_age_ms > 0 and math.min(expires_ms, created_ms + max_age_ms) or expires_ms
end

local MAX_LOOK_AHEAD_MS = 86400000

-- Decides how long the family's key and its entry in the user's index live: until the family and its last access token
-- end, and up to a look-ahead longer, so that most refreshes write neither. The look-ahead is a tenth of the lifetime of
-- a refresh token, at most a day. Returns true if the caller must write the field v and call keep_family.
local function extend_lifetime(family, refresh_ttl_ms, max_age_ms)
  local lives_until_ms = math.max(family.expires_ms, family.access_until_ms)
  local longest_ms = lives_until_ms + math.min(MAX_LOOK_AHEAD_MS, math.floor(refresh_ttl_ms / 10))
  -- No refresh extends a family beyond its maximum age, so the look-ahead ends there.
  longest_ms = math.max(lives_until_ms, cap_lifetime(family.created_ms, longest_ms, max_age_ms))
  if family.kept_until_ms >= lives_until_ms and family.kept_until_ms <= longest_ms then return false end
  family.kept_until_ms = longest_ms
  return true
end

local function keep_family(family_key, family, family_digest, now_ms)
  redis.call('PEXPIRE', family_key, string.format('%d', family.kept_until_ms - now_ms))
  add_member(family.subject, 'family:' .. family_digest, family.kept_until_ms, now_ms)
end

-- Writes a new family with its first access token. Returns the lifetime of the token in ms.
local function start_family(family, family_digest, access_digest, now_ms, access_ttl_ms, refresh_ttl_ms, max_age_ms)
  family.head, family.oldest, family.replays, family.longest_s = 1, 0, 0, 0
  family.access_until_ms, family.kept_until_ms = 0, 0
  local expires_ms = add_access_token(family, family_digest, access_digest, family.scope, now_ms, access_ttl_ms)
  local family_key = key_of('family', family_digest)
  extend_lifetime(family, refresh_ttl_ms, max_age_ms)
  redis.call('HSET', family_key, 'v', format_fixed(family), 'h', format_state(family),
    'c', family.client_id, 'u', family.username, 'r', shorten_scope(family.scope),
    access_field_of(0), format_entry(family, access_digest, now_ms, 0))
  if family.sid ~= '' then redis.call('HSET', family_key, 's', family.sid) end
  keep_family(family_key, family, family_digest, now_ms)
  return expires_ms - now_ms
end

-- Returns the first word of `wanted` that is not in `allowed`, or nil.
local function find_excess(allowed, wanted)
  if allowed == wanted then return nil end
  allowed = ' ' .. allowed .. ' '
  for word in string.gmatch(wanted, '%S+') do
    if not string.find(allowed, ' ' .. word .. ' ', 1, true) then return word end
  end
end

-- Returns the family with all of its fields, which are in `field` by name, or nil if there is none.
local function read_whole_family(family_key)
  local field = read_fields(family_key)
  local family = parse_family(field.v, field.h, field.c, field.u, field.r)
  if family then family.field = field end
  return family
end

local TOMBSTONE_MS = '86400000'

-- Ends a family that was read whole. A deletion comes first: a full Redis accepts it, refuses no write of a script after
-- the first one, and so accepts the tombstone. The family's record is deleted last: if the script ends half-way, a
-- repeated call finds there what is left. `replay` is the lines presented and spent_ms of the tombstone. Returns how many
-- access tokens the record names.
local function end_whole_family(family, family_digest, reason, now_ms, replay)
  local keys = {}
  for name, entry in pairs(family.field) do
    if string.find(name, '^[ap]%d') then keys[#keys + 1] = access_key_of(entry) end
  end
  if #keys > 0 then redis.call('DEL', unpack(keys)) end
  forget_member(family.subject, 'family:' .. family_digest)
  local tombstone = string.format('2\n%d\n%s\n%d\n', now_ms, reason, family.head) .. (replay or '\n')
    .. string.format('\n%d\n', family.created_ms)
    .. table.concat({ family.client_id, family.subject, family.username, family.scope }, '\n')
  -- The record outlives the session by the look-ahead. A session that has expired by itself has no other end.
  if now_ms < math.max(family.expires_ms, family.access_until_ms) then
    redis.call('SET', key_of('ended', family_digest), tombstone, 'PX', TOMBSTONE_MS)
  end
  redis.call('DEL', key_of('family', family_digest))
  return #keys
end

local MOST_DISPLACED = 10

-- Ends the oldest families of the user, by login and however recently they were refreshed, until at most `most` are live
-- with the new one. One call ends at most MOST_DISPLACED, so after the limit was lowered it takes several. The index
-- also has members of other kinds and of families that are over. It is read only if it has more members than `most`.
-- Returns digest, client_id, username and scope of each family that it ended.
local function displace_oldest(family, family_digest, most, now_ms)
  local index_key, live, displaced = key_of('index', family.subject), {}, {}
  if redis.call('ZCARD', index_key) <= most then return displaced end
  for _, member in ipairs(redis.call('ZRANGE', index_key, '0', '-1')) do
    -- Only what is needed is read of each: parse_family would take twice the time.
    local digest = string.sub(member, 1, 7) == 'family:' and string.sub(member, 8)
    local values = digest and digest ~= family_digest and redis.call('HMGET', key_of('family', digest), 'v', 'h')
    local created_ms = values and string.match(values[1] or '', '^2 (%d+) ')
    if created_ms then
      local expires_in_ms, access_in_ms = string.match(values[2], '^%d+ (%-?%d+) (%-?%d+) ')
      if now_ms < created_ms + math.max(expires_in_ms, access_in_ms) then live[#live + 1] = { created_ms + 0, digest } end
    end
  end
  for _ = 1, math.min(#live + 1 - most, MOST_DISPLACED) do
    local oldest = 1
    for i = 2, #live do
      if live[i][1] < live[oldest][1] then oldest = i end
    end
    local digest = table.remove(live, oldest)[2]
    local other = read_whole_family(key_of('family', digest))
    end_whole_family(other, digest, 'session_displaced', now_ms)
    for _, value in ipairs({ digest, other.client_id, other.username, other.scope }) do
      displaced[#displaced + 1] = value
    end
  end
  return displaced
end
