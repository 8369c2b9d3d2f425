--!df flags=allow-undeclared-keys
-- Documents the records of a user's shard and defines the functions that read and write them. This text is prepended to
-- every script of the store.
--
-- Every record has version "2". A family is a hash, and all other records are lines. Three fields are empty until the
-- service follows the logout of an identity provider or issues tokens for one API: sid (the identity provider's
-- session), upstream_subject (the user's subject there) and audience (the API). Python parses these records with the
-- classes of records.py.
--
-- A family is the record of one grant. It is a hash, so that a refresh reads and writes only a few of its fields. Every
-- session has a family, so the field names are short:
--   v           version: "2"
--   h           head: the generation of the one live refresh token
--   t           times in ms, "created expires access_until": the time of the grant (since 1970), the end of the family
--               unless it is refreshed, and the end of its last access token (both since the grant)
--   s c u r     subject, client_id, username, scope
--   g           grant, in lines: "p" for password or "a" for authorization_code; "1" if the client authenticated with a
--               secret; sid; upstream_subject; audience
--   a0 to a99   access tokens, and when generations were spent: digest of the token (22 characters), time of issue (ms,
--               13 digits), generation that bought it (8 hex digits; 0 for the first token). Generation n is in the
--               field of n modulo 100
--   f           floor: the lowest generation for which these fields give the time when it was spent. A generation
--               without an entry has the time of the next higher generation that has one
--   s0 to s64   "first:last:ms": the time of generations below the floor, as long as it is within the grace.
--               Generations that were spent in one slice of time share a field and the latest time
--   m           merged: "slice:first:width" of the latest of these fields, with the width of its slice in ms, or empty
--   o           old: "generation:ms": from this time on (since the grant) the fields of generations below this one may
--               be deleted
--   p           access tokens issued to replays: digest, expiry (ms, 13 digits), replayed generation (8 hex digits)
--   k           streak: "generation:count": the last replayed generation, and how many generations in a row were
--               replayed
--   n           replays: "generation:count generation:count …": how often each generation was replayed (at most
--               REPLAYS_COUNTED), with the last replayed generation last
-- All fields except the numbered ones, k and n exist from the start, because Redis reads the whole hash to find a field
-- missing. In a usual session there are fewer than 128 fields, none longer than 64 characters. Beyond either bound
-- Redis keeps the hash in an encoding that needs three times the memory, until the family ends.
--
-- A browser session: version, created_ms, expires_ms, subject, realm, username, login (the digest of the first of this
--   user's consecutive sessions in this browser), name (the user's name at the identity provider, or empty), sid,
--   upstream_subject.
-- A consent: version, created_ms, expires_ms, login, subject, answer (empty; "denied"; the digest of the code), sid,
--   upstream_subject, audience, request (JSON, which has no line ends).
-- A code: version, created_ms, expires_ms, subject, client_id, redirect_uri, code_challenge, username, scope, sid,
--   upstream_subject, audience.
-- A code after its exchange: version, client_id, code_challenge, family digest.
-- An access token: version, issued_ms, expires_ms, family digest, client_id, subject, username, scope, sid,
--   upstream_subject, audience.
-- The tombstone of a family: version, ended_ms, reason (see `EndReason` in families.py), head, presented (the
--   generation whose replay ended the family, or empty), spent_ms (when that generation had been spent, or empty),
--   created_ms, client_id, subject, username, scope. Tombstones are for people to read. No request reads one, and no
--   family is restored from one.

local ACCESS_TOKENS_PER_FAMILY = 100
local REPLAYS_COUNTED = 6
local REPLAYED_GENERATIONS = 64
local GRACE_SLICES = 64
local DIGEST_WIDTH, MS_WIDTH, ENTRY_WIDTH = 22, 13, 43
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

-- Refuses a record of another version, which is neither accepted nor rejected, and neither renewed nor deleted. Python
-- treats the word UNKNOWNVERSION as an outage.
local function refuse_version(what) error('UNKNOWNVERSION ' .. what .. ' has a record of another version', 0) end

local function read_lines(text, what)
  local line = split(text, '\n')
  if line[1] ~= '2' then refuse_version(what) end
  return line
end

local FAMILY_FIELDS = { 'v', 'h', 't', 's', 'c', 'u', 'r', 'g', 'f', 'm', 'o', 'p' }

-- Returns a family from the values of FAMILY_FIELDS, the first of which is at index `at`, or nil if there is none.
local function parse_family(values, at)
  local version, head, times, subject, client_id, username, scope, grant, floor, merged, old, replayed = unpack(values, at)
  if not version then return nil end
  if version ~= '2' then refuse_version('a session') end
  local created_ms, ends_in_ms, last_ends_in_ms = string.match(times or '', '^(%d+) (%-?%d+) (%-?%d+)$')
  local grant_type, secret_used, sid, upstream_subject, audience =
    string.match(grant or '', '^([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)$')
  if not (created_ms and grant_type) then error('a session has a broken record') end
  return {
    head = tonumber(head),
    created_ms = tonumber(created_ms), expires_ms = created_ms + ends_in_ms, access_until_ms = created_ms + last_ends_in_ms,
    subject = subject, client_id = client_id, username = username, scope = scope,
    grant_type = grant_type, secret_used = secret_used,
    sid = sid, upstream_subject = upstream_subject, audience = audience,
    floor = tonumber(floor), merged = merged, old = old, replayed = replayed,
  }
end

local function format_times(family)
  local created_ms = family.created_ms
  return string.format('%.0f %.0f %.0f', created_ms, family.expires_ms - created_ms, family.access_until_ms - created_ms)
end

local function format_old(family, generation, ms) return string.format('%d:%.0f', generation, ms - family.created_ms) end

-- Returns a generation, and the time from which on the fields of lower generations are not needed.
local function parse_old(family)
  local generation, ms = string.match(family.old, '^(%d+):(%-?%d+)$')
  return tonumber(generation), family.created_ms + ms
end

-- Returns the family without its numbered fields, and the values of two of these fields.
local function read_family(family_key, one_field, other_field)
  local values = redis.call('HMGET', family_key, one_field, other_field, unpack(FAMILY_FIELDS))
  return parse_family(values, 3), values[1], values[2]
end

-- Returns the family with all of its fields, which are in `field` by name, or nil if there is none.
local function read_whole_family(family_key)
  local names_and_values, field, values = redis.call('HGETALL', family_key), {}, {}
  for i = 1, #names_and_values, 2 do field[names_and_values[i]] = names_and_values[i + 1] end
  for i, name in ipairs(FAMILY_FIELDS) do values[i] = field[name] end
  local family = parse_family(values, 1)
  if family then family.field = field end
  return family
end

-- Returns the name of the field that holds the access token which this generation bought.
local function access_field_of(generation) return 'a' .. generation % ACCESS_TOKENS_PER_FAMILY end

local function format_entry(digest, ms, generation) return string.format('%s%013.0f%08x', digest, ms, generation) end

-- Returns the time (ms) and the generation of an entry.
local function parse_entry(entry)
  local generation_at = DIGEST_WIDTH + MS_WIDTH + 1
  return tonumber(string.sub(entry, DIGEST_WIDTH + 1, generation_at - 1)), tonumber(string.sub(entry, generation_at), 16)
end

local function access_key_of(entry) return key_of('access', string.sub(entry, 1, DIGEST_WIDTH)) end

-- Returns the time (ms) of the mark that a revokeAll set, or 0. A record created at or before the mark is revoked.
local function read_mark(subject) return tonumber(redis.call('GET', key_of('mark', subject)) or '0') end

-- Removes expired members, and lets the index live as long as its longest-lived member.
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

-- Writes an access token of the family. Returns the time (ms) when the token expires.
local function add_access_token(family, family_digest, digest, scope, now_ms, ttl_ms)
  if #digest ~= DIGEST_WIDTH then error('the digest of an access token has another length') end
  local expires_ms = math.min(now_ms + ttl_ms, family.expires_ms)
  local record = string.format('2\n%.0f\n%.0f\n', now_ms, expires_ms) .. table.concat({
    family_digest, family.client_id, family.subject, family.username, scope,
    family.sid, family.upstream_subject, family.audience,
  }, '\n')
  redis.call('SET', key_of('access', digest), record, 'PX', expires_ms - now_ms)
  family.access_until_ms = math.max(family.access_until_ms, expires_ms)
  return expires_ms
end

-- Indexes the family, and lets its key live until both the family and its last access token end.
local function keep_family(family_key, family, family_digest, now_ms)
  local lives_until_ms = math.max(family.expires_ms, family.access_until_ms)
  redis.call('PEXPIRE', family_key, lives_until_ms - now_ms)
  index_member(family.subject, 'family:' .. family_digest, lives_until_ms, now_ms)
end

-- Writes a new family with its first access token. Returns the lifetime of the token in ms.
local function start_family(family, family_digest, access_digest, now_ms, access_ttl_ms)
  family.access_until_ms = 0
  local expires_ms = add_access_token(family, family_digest, access_digest, family.scope, now_ms, access_ttl_ms)
  local family_key = key_of('family', family_digest)
  redis.call('HSET', family_key, 'v', '2', 'h', '1', 't', format_times(family),
    's', family.subject, 'c', family.client_id, 'u', family.username, 'r', family.scope, 'g', table.concat({
      family.grant_type, family.secret_used, family.sid, family.upstream_subject, family.audience,
    }, '\n'), 'f', '0', 'm', '', 'o', format_old(family, 1, expires_ms), 'p', '',
    access_field_of(0), format_entry(access_digest, now_ms, 0))
  keep_family(family_key, family, family_digest, now_ms)
  return expires_ms - now_ms
end

-- Ends a family that was read whole. A deletion comes first: a full Redis accepts it, refuses no write of a script
-- after the first one, and so accepts the tombstone. The family's record is deleted last: if the script ends half-way,
-- a repeated call finds there what is left. `replay` is the lines presented and spent_ms of the tombstone. Returns how
-- many access tokens the record names.
local function end_family(family, family_digest, reason, now_ms, replay)
  local keys = {}
  for name, entry in pairs(family.field) do
    if string.find(name, '^a%d') then keys[#keys + 1] = access_key_of(entry) end
  end
  for at = 1, #family.replayed, ENTRY_WIDTH do
    keys[#keys + 1] = access_key_of(string.sub(family.replayed, at, at + DIGEST_WIDTH - 1))
  end
  if #keys > 0 then redis.call('DEL', unpack(keys)) end
  forget_member(family.subject, 'family:' .. family_digest)
  local tombstone = string.format('2\n%.0f\n%s\n%d\n', now_ms, reason, family.head) .. (replay or '\n')
    .. string.format('\n%.0f\n', family.created_ms)
    .. table.concat({ family.client_id, family.subject, family.username, family.scope }, '\n')
  redis.call('SET', key_of('ended', family_digest), tombstone, 'PX', TOMBSTONE_MS)
  redis.call('DEL', key_of('family', family_digest))
  return #keys
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

-- Returns the browser session, or nil if it is over or revoked.
local function find_browser_session(browser_key, now_ms)
  local text = redis.call('GET', browser_key)
  if not text then return nil end
  local line = read_lines(text, 'a browser session')
  local session = {
    created_ms = tonumber(line[2]), expires_ms = tonumber(line[3]), subject = line[4], login = line[7],
    sid = line[9], upstream_subject = line[10],
  }
  if now_ms >= session.expires_ms or session.created_ms <= read_mark(session.subject) then return nil end
  return session
end

-- Returns the consent, even if it is answered, or nil if it is expired or revoked.
local function find_consent(consent_key, now_ms)
  local text = redis.call('GET', consent_key)
  if not text then return nil end
  local line = read_lines(text, 'a consent')
  local consent = {
    created_ms = tonumber(line[2]), expires_ms = tonumber(line[3]), login = line[4], subject = line[5], answer = line[6],
    sid = line[7], upstream_subject = line[8], audience = line[9], request = line[10],
  }
  if now_ms >= consent.expires_ms or consent.created_ms <= read_mark(consent.subject) then return nil end
  return consent
end

local function format_consent(consent)
  return string.format('2\n%.0f\n%.0f\n', consent.created_ms, consent.expires_ms) .. table.concat({
    consent.login, consent.subject, consent.answer, consent.sid, consent.upstream_subject, consent.audience, consent.request,
  }, '\n')
end
