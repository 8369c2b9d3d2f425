-- The records of a user's shard, written down once: this text stands in front of every script.
--
-- A family is the record of one grant. Its fields, one a line:
--   version          "1"
--   head             the generation of the one live refresh token
--   created_ms       when the grant was made
--   expires_ms       when the family ends unless it is refreshed
--   grant            "password" or "authorization_code"
--   secret_used      "1" where the client authenticated with a secret
--   subject client_id username scope
--   floor            the lowest generation whose time of spending is still known
--   spent            "last:ms last/replays:ms …", each the time of all generations after the previous entry up to last,
--                    and, after a replay, how many replays of one of them were answered (at most REPLAYS_COUNTED)
--   streak           "generation:count", the last replayed generation and how many in a row were
--   access           "digest:ms digest/generation:ms …", the access tokens and when each expires; one that a replay gave
--                    names the replayed generation
-- A browser session's record: version "2", created_ms, expires_ms, subject, realm, username, login (the digest of the
-- first session in an unbroken row of this user's in this browser), name (as an organisation calls the user; or empty).
-- A consent's record: version, created_ms, expires_ms, login, subject, answer (empty; "denied"; the digest of
-- the code), request (JSON, so that it has no line ends).
-- An access token's record: version, issued_ms, expires_ms, family digest, client_id, subject, username, scope.
-- The tombstone of a family: version, ended_ms, reason (see `Ending` in families.py), head, presented (the generation
-- whose replay ended it, or empty), spent_ms (when that one had been spent, if known), created_ms, client_id, subject,
-- username, scope. It is for people to read: no request looks at it, and nothing comes back from it.

local ACCESS_TOKENS_PER_FAMILY = 100
local REPLAYS_COUNTED = 5
local SPENT_ENTRIES = 64
local TOMBSTONE_MS = 86400000

local shard = string.match(KEYS[1] or '', '{(.-)}')

local function key_of(kind, name) return kind .. ':{' .. shard .. '}:' .. name end

local function read_clock(offset_ms)
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000) + offset_ms
end

local function split(text, separator)
  local parts = {}
  for part in string.gmatch(text .. separator, '(.-)' .. separator) do parts[#parts + 1] = part end
  return parts
end

-- What another version wrote is not judged: neither dead nor alive, neither kept nor deleted. Python takes the word for an
-- outage.
local function refuse_version(what) error('UNKNOWNVERSION ' .. what .. ' has a record of another version', 0) end

local function read_lines(text, version, what)
  local line = split(text, '\n')
  if line[1] ~= version then refuse_version(what) end
  return line
end

-- The entries of `spent` and `access`; the note behind a slash is '' where there is none.
local function parse_entries(text)
  local entries = {}
  for name, note, ms in string.gmatch(text, '([^%s/:]+)/?(%d*):(%d+)') do
    entries[#entries + 1] = { name = name, note = note, ms = tonumber(ms) }
  end
  return entries
end

local function format_entries(entries)
  local parts = {}
  for i, entry in ipairs(entries) do
    local name = entry.note == '' and entry.name or entry.name .. '/' .. entry.note
    parts[i] = name .. ':' .. string.format('%.0f', entry.ms)
  end
  return table.concat(parts, ' ')
end

-- All lines in one match, which takes half as long as to split them.
local FAMILY_LINES = '^1\n(%d+)\n(%d+)\n(%d+)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)'
  .. '\n(%d+)\n([^\n]*)\n([^\n]*)\n([^\n]*)'

local function parse_family(text)
  local head, created_ms, expires_ms, grant, secret_used, subject, client_id, username, scope, floor, spent, streak, access
    = string.match(text, FAMILY_LINES)
  if not head then
    if string.sub(text, 1, 2) ~= '1\n' then refuse_version('a session') end
    error('a session has a broken record')
  end
  return {
    head = tonumber(head), created_ms = tonumber(created_ms), expires_ms = tonumber(expires_ms),
    grant = grant, secret_used = secret_used,
    subject = subject, client_id = client_id, username = username, scope = scope,
    floor = tonumber(floor), spent = parse_entries(spent), streak = streak, access = parse_entries(access),
  }
end

local function format_family(family)
  return string.format('1\n%d\n%.0f\n%.0f\n', family.head, family.created_ms, family.expires_ms)
    .. table.concat({ family.grant, family.secret_used, family.subject, family.client_id, family.username, family.scope }, '\n')
    .. string.format('\n%d\n', family.floor)
    .. format_entries(family.spent) .. '\n' .. family.streak .. '\n' .. format_entries(family.access)
end

-- What was created at or before the mark is dead, whatever else is known of it.
local function read_mark(subject) return tonumber(redis.call('GET', key_of('mark', subject)) or '0') end

-- Members past their time go, and the index lives as long as its longest-lived member.
local function trim_index(index, now_ms)
  redis.call('ZREMRANGEBYSCORE', index, '-inf', now_ms)
  local longest = redis.call('ZRANGE', index, -1, -1, 'WITHSCORES')
  if longest[2] then redis.call('PEXPIRE', index, math.max(1, tonumber(longest[2]) - now_ms)) end
end

local function index_member(subject, member, expires_ms, now_ms)
  local index = key_of('index', subject)
  redis.call('ZADD', index, expires_ms, member)
  trim_index(index, now_ms)
end

local function forget_member(subject, member)
  redis.call('ZREM', key_of('index', subject), member)
  redis.call('ZREM', key_of('revoked', subject), member)
end

local function delete_access_token(tokens, i)
  redis.call('DEL', key_of('access', tokens[i].name))
  table.remove(tokens, i)
  return true
end

-- Deletes the oldest token that a replay gave: a replay of this generation, or of any where it is nil. Returns true, or
-- nothing where there is none.
local function delete_replay_token(tokens, generation)
  for i, token in ipairs(tokens) do
    if token.note ~= '' and (not generation or token.note == generation) then return delete_access_token(tokens, i) end
  end
end

-- Makes room for one more, from what replays gave first. A replay takes it from replays alone: the bound may be passed
-- by one token of a replay.
local function make_room(tokens, replay)
  if not replay then
    while #tokens >= ACCESS_TOKENS_PER_FAMILY do
      if not delete_replay_token(tokens) then delete_access_token(tokens, 1) end
    end
    return
  end
  if replay.count >= REPLAYS_COUNTED then delete_replay_token(tokens, replay.generation) end
  if #tokens >= ACCESS_TOKENS_PER_FAMILY then delete_replay_token(tokens) end
end

-- Writes an access token of the family and notes it there; returns the milliseconds that it lives. `replay` is nil, or
-- what gives the token: the replayed generation (text), and the count of its replays by now.
local function add_access_token(family, family_digest, digest, scope, now_ms, ttl_ms, replay)
  local expires_ms = math.min(now_ms + ttl_ms, family.expires_ms)
  local record = string.format('1\n%.0f\n%.0f\n', now_ms, expires_ms)
    .. table.concat({ family_digest, family.client_id, family.subject, family.username, scope }, '\n')
  redis.call('SET', key_of('access', digest), record, 'PX', expires_ms - now_ms)
  local live = {}
  for _, token in ipairs(family.access) do
    if token.ms > now_ms then live[#live + 1] = token end
  end
  make_room(live, replay)
  live[#live + 1] = { name = digest, note = replay and replay.generation or '', ms = expires_ms }
  family.access = live
  return expires_ms - now_ms
end

-- Deletions come first: after them a full Redis takes the tombstone, which is smaller than what went. `replay` is what
-- the tombstone says of one: presented and spent_ms. Returns how many access tokens went with the family.
local function end_family(family, family_digest, reason, now_ms, replay)
  redis.call('DEL', key_of('family', family_digest))
  for _, token in ipairs(family.access) do redis.call('DEL', key_of('access', token.name)) end
  forget_member(family.subject, 'family:' .. family_digest)
  local tombstone = string.format('1\n%.0f\n%s\n%d\n', now_ms, reason, family.head) .. (replay or '\n')
    .. string.format('\n%.0f\n', family.created_ms)
    .. table.concat({ family.client_id, family.subject, family.username, family.scope }, '\n')
  redis.call('SET', key_of('ended', family_digest), tombstone, 'PX', TOMBSTONE_MS)
  return #family.access
end

-- The key lives as long as anything of the family does, which may be longer than the family can be refreshed.
local function write_family(family, family_digest, now_ms)
  local lives_until_ms = family.expires_ms
  for _, token in ipairs(family.access) do lives_until_ms = math.max(lives_until_ms, token.ms) end
  redis.call('SET', key_of('family', family_digest), format_family(family), 'PX', lives_until_ms - now_ms)
  index_member(family.subject, 'family:' .. family_digest, lives_until_ms, now_ms)
end

-- A new family with its first access token; returns the milliseconds that the token lives.
local function start_family(family, family_digest, access_digest, now_ms, access_ttl_ms)
  family.head, family.floor, family.spent, family.streak, family.access = 1, 1, {}, '', {}
  local lives_ms = add_access_token(family, family_digest, access_digest, family.scope, now_ms, access_ttl_ms)
  write_family(family, family_digest, now_ms)
  return lives_ms
end

-- An end of life that no refresh moves: 0 means none.
local function cap_lifetime(created_ms, expires_ms, max_age_ms)
  if max_age_ms > 0 then return math.min(expires_ms, created_ms + max_age_ms) end
  return expires_ms
end

-- Whether each word of the wanted text stands in the allowed one.
local function covers(allowed, wanted)
  for word in string.gmatch(wanted, '%S+') do
    if not string.find(' ' .. allowed .. ' ', ' ' .. word .. ' ', 1, true) then return false end
  end
  return true
end

-- Nil where the session is over or revoked.
local function find_browser_session(browser_key, now_ms)
  local text = redis.call('GET', browser_key)
  if not text then return nil end
  local line = read_lines(text, '2', 'a browser session')
  local session = {
    created_ms = tonumber(line[2]), expires_ms = tonumber(line[3]), subject = line[4], login = line[7],
  }
  if now_ms >= session.expires_ms or session.created_ms <= read_mark(session.subject) then return nil end
  return session
end

-- Nil where it is too late to answer, or revoked; an answered consent is still found.
local function find_consent(consent_key, now_ms)
  local text = redis.call('GET', consent_key)
  if not text then return nil end
  local line = read_lines(text, '1', 'a consent')
  local consent = {
    created_ms = tonumber(line[2]), expires_ms = tonumber(line[3]),
    login = line[4], subject = line[5], answer = line[6], request = line[7],
  }
  if now_ms >= consent.expires_ms or consent.created_ms <= read_mark(consent.subject) then return nil end
  return consent
end

local function format_consent(consent)
  return string.format('1\n%.0f\n%.0f\n', consent.created_ms, consent.expires_ms)
    .. table.concat({ consent.login, consent.subject, consent.answer, consent.request }, '\n')
end
