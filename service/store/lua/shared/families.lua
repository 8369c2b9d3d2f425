-- Defines how a family is read, started, kept alive and ended.

local ACCESS_TOKENS_PER_FAMILY = 100
local DIGEST_WIDTH, MS_WIDTH, ENTRY_WIDTH = 22, 13, 43

-- Returns a family from the values of its fields v, h, t, s, c, u, r, g, f, m, o and p, the first of which is at index
-- `at`, or nil if there is none.
-- `provider` is the lines sid, upstream_subject and audience.
local function parse_family(values, at)
  local version, head, times, subject, client_id, username, scope, grant, floor, merged, old, replayed = unpack(values, at)
  if not version then return nil end
  if version ~= '2' then refuse_version('a session') end
  local created_ms, ends_in_ms, last_ends_in_ms, kept_in_ms = string.match(times or '', '^(%d+) (%-?%d+) (%-?%d+) ?(%-?%d*)$')
  local grant_type, secret_used, provider = string.match(grant or '', '^(%l)\n(%d)\n([^\n]*\n[^\n]*\n[^\n]*)$')
  if not (created_ms and grant_type) then error('a session has a broken record') end
  return {
    head = head + 0, created_ms = created_ms + 0, expires_ms = created_ms + ends_in_ms,
    access_until_ms = created_ms + last_ends_in_ms, kept_until_ms = kept_in_ms ~= '' and created_ms + kept_in_ms or 0,
    subject = subject, client_id = client_id, username = username, scope = scope,
    grant_type = grant_type, secret_used = secret_used, provider = provider,
    floor = floor + 0, merged = merged, old = old, replayed = replayed,
  }
end

local function format_times(family)
  local created_ms = family.created_ms
  return string.format('%d %d %d %d', created_ms, family.expires_ms - created_ms, family.access_until_ms - created_ms,
    family.kept_until_ms - created_ms)
end

local function format_old(family, generation, ms) return string.format('%d:%d', generation, ms - family.created_ms) end

-- Returns a generation, and the time from which on the fields of lower generations are not needed.
local function parse_old(family)
  local generation, ms = string.match(family.old, '^(%d+):(%-?%d+)$')
  return generation + 0, family.created_ms + ms
end

-- Returns the family without its numbered fields, and the values of two of these fields.
local function read_family(family_key, one_field, other_field)
  local values = redis.call('HMGET', family_key, one_field, other_field,
    'v', 'h', 't', 's', 'c', 'u', 'r', 'g', 'f', 'm', 'o', 'p')
  return parse_family(values, 3), values[1], values[2]
end

-- Returns the name of the field that holds the access token which this generation bought.
local function access_field_of(generation) return 'a' .. generation % ACCESS_TOKENS_PER_FAMILY end

local function format_entry(digest, ms, generation) return string.format('%s%013d%08x', digest, ms, generation) end

-- Returns the time (ms) and the generation of an entry.
local function parse_entry(entry)
  local generation_at = DIGEST_WIDTH + MS_WIDTH + 1
  return string.sub(entry, DIGEST_WIDTH + 1, generation_at - 1) + 0, tonumber(string.sub(entry, generation_at), 16)
end

local function access_key_of(entry) return key_of('access', string.sub(entry, 1, DIGEST_WIDTH)) end

-- Writes an access token of the family. Returns the time (ms) when the token expires.
local function add_access_token(family, family_digest, digest, scope, now_ms, ttl_ms)
  if #digest ~= DIGEST_WIDTH then error('the digest of an access token has another length') end
  local expires_ms = math.min(now_ms + ttl_ms, family.expires_ms)
  local record = string.format('2\n%d\n%d\n', now_ms, expires_ms) .. family_digest .. '\n' .. family.client_id .. '\n'
    .. family.subject .. '\n' .. family.username .. '\n' .. scope .. '\n' .. family.provider
  redis.call('SET', key_of('access', digest), record, 'PX', string.format('%d', expires_ms - now_ms))
  family.access_until_ms = math.max(family.access_until_ms, expires_ms)
  return expires_ms
end

local MAX_LOOK_AHEAD_MS = 86400000

-- Decides how long the family's key and its entry in the user's index live: until the family and its last access token
-- end, and up to a look-ahead longer, so that most refreshes write neither. The look-ahead is a tenth of the lifetime of
-- a refresh token, at most a day. Returns true if the caller must call keep_family after it has written the times.
local function look_ahead(family, refresh_ttl_ms)
  local lives_until_ms = math.max(family.expires_ms, family.access_until_ms)
  local longest_ms = lives_until_ms + math.min(MAX_LOOK_AHEAD_MS, math.floor(refresh_ttl_ms / 10))
  if family.kept_until_ms >= lives_until_ms and family.kept_until_ms <= longest_ms then return false end
  family.kept_until_ms = longest_ms
  return true
end

local function keep_family(family_key, family, family_digest, now_ms)
  redis.call('PEXPIRE', family_key, string.format('%d', family.kept_until_ms - now_ms))
  open_index().add(family.subject, 'family:' .. family_digest, family.kept_until_ms, now_ms)
end

-- Writes a new family with its first access token. Returns the lifetime of the token in ms.
local function start_family(family, family_digest, access_digest, now_ms, access_ttl_ms, refresh_ttl_ms)
  family.access_until_ms, family.kept_until_ms = 0, 0
  local expires_ms = add_access_token(family, family_digest, access_digest, family.scope, now_ms, access_ttl_ms)
  local family_key = key_of('family', family_digest)
  look_ahead(family, refresh_ttl_ms)
  redis.call('HSET', family_key, 'v', '2', 'h', '1', 't', format_times(family),
    's', family.subject, 'c', family.client_id, 'u', family.username, 'r', family.scope,
    'g', family.grant_type .. '\n' .. family.secret_used .. '\n' .. family.provider,
    'f', '0', 'm', '', 'o', format_old(family, 1, expires_ms), 'p', '',
    access_field_of(0), format_entry(access_digest, now_ms, 0))
  keep_family(family_key, family, family_digest, now_ms)
  return expires_ms - now_ms
end

-- Returns the end of the family's life, limited by its maximum age, which no refresh extends. An age of 0 is no limit.
local function cap_lifetime(created_ms, expires_ms, max_age_ms)
  if max_age_ms > 0 then return math.min(expires_ms, created_ms + max_age_ms) end
  return expires_ms
end

-- Returns true if each word of `wanted` is in `allowed`.
local function covers(allowed, wanted)
  for word in string.gmatch(wanted, '%S+') do
    if not string.find(' ' .. allowed .. ' ', ' ' .. word .. ' ', 1, true) then return false end
  end
  return true
end

-- Opens the functions that read and end a family with all of its fields.
local function open_families()
  local TOMBSTONE_MS = '86400000'
  local families = {}

  -- Returns the family with all of its fields, which are in `field` by name, or nil if there is none.
  function families.read_whole(family_key)
    local names_and_values, field, values = redis.call('HGETALL', family_key), {}, {}
    for i = 1, #names_and_values, 2 do field[names_and_values[i]] = names_and_values[i + 1] end
    for name in string.gmatch('vhtscurgfmop', '.') do values[#values + 1] = field[name] or false end
    local family = parse_family(values, 1)
    if family then family.field = field end
    return family
  end

  -- Ends a family that was read whole. A deletion comes first: a full Redis accepts it, refuses no write of a script
  -- after the first one, and so accepts the tombstone. The family's record is deleted last: if the script ends half-way,
  -- a repeated call finds there what is left. `replay` is the lines presented and spent_ms of the tombstone. Returns how
  -- many access tokens the record names.
  function families.finish(family, family_digest, reason, now_ms, replay)
    local keys = {}
    for name, entry in pairs(family.field) do
      if string.find(name, '^a%d') then keys[#keys + 1] = access_key_of(entry) end
    end
    for at = 1, #family.replayed, ENTRY_WIDTH do
      keys[#keys + 1] = access_key_of(string.sub(family.replayed, at, at + DIGEST_WIDTH - 1))
    end
    if #keys > 0 then redis.call('DEL', unpack(keys)) end
    forget_member(family.subject, 'family:' .. family_digest)
    local tombstone = string.format('2\n%d\n%s\n%d\n', now_ms, reason, family.head) .. (replay or '\n')
      .. string.format('\n%d\n', family.created_ms)
      .. table.concat({ family.client_id, family.subject, family.username, family.scope }, '\n')
    redis.call('SET', key_of('ended', family_digest), tombstone, 'PX', TOMBSTONE_MS)
    redis.call('DEL', key_of('family', family_digest))
    return #keys
  end

  return families
end
