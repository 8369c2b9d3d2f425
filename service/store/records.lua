-- Documents the records of sessions, and defines what scripts of all kinds need.
--
-- Redis converts the number arguments of `redis.call` slowly, and `%d` is faster than `%.0f`. So the scripts format their
-- numbers themselves. A time in ms is exact in both, where a `long` of C has 64 bits.
--
-- Every record has version "2". A family is a hash, and all other records are lines. Python parses these records
-- with the classes of records.py.
--
-- A family is the record of one grant. It is a hash, so that a refresh reads and writes only a few of its fields. Every
-- session has a family, so the field names are short:
--   v           what changes rarely, "2 created kept grant_type secret_used subject": the version; the time
--               of the grant (ms since 1970); the end of the key and of its entry in the index (see `extend_lifetime`; ms
--               since the grant); "p" for password or "a" for authorization_code; "1" if the client authenticated with a
--               secret
--   h           what every refresh changes, "head expires access_until oldest replays longest":
--               head          the generation of the one live refresh token
--               expires       the end of the family unless it is refreshed (ms since the grant)
--               access_until  the end of its last access token (ms since the grant)
--               oldest        the oldest generation whose time is kept. A replay of an older one is too late
--               replays       the number of the field p that the next replay writes, before the modulo
--               longest       the longest lifetime (seconds) of the access tokens that may still live
--   c u r       client_id, username, scope. A scope of more than 64 characters is without the words realm and role,
--               "main enduser …"
--   s           the sid, absent in realm main (see below)
--   a0 to a99   access tokens, and when generations were spent: digest of the token (22 characters), and "ms:generation":
--               the time of issue (since the grant), and the generation that bought the token (0 for the first one).
--               Generation n is in the field of n modulo 100. A generation without an entry, which Redis lost in a
--               failover, has the time of the next higher generation that has one
--   o           "ms:generation ms:generation …", the latest first: the times that left a0 to a99 within the grace. A time
--               is that of its generation, and of those before it down to the next pair. In each 64th of the grace there
--               is one pair, the latest. Absent in a session of fewer refreshes
--   p0 to p99   access tokens issued to replays, like a0 to a99: replay n since all tokens and the grace were over is in
--               the field of n modulo 100
--   k           "generation:streak:times": the last replayed generation, how many generations in a row were replayed,
--               and how often this one was (at most REPLAYS_COUNTED)
-- A refresh asks for few fields, and for none that may be missing but one, because each costs Redis a search. No field is
-- longer than 64 characters, unless the name of the user or the client is, or the session is refreshed a hundred times
-- within the grace. Beyond that Redis keeps the hash in an encoding that needs three times the memory, until the key is
-- written anew (see `forget`).
--
-- A browser session: version, created_ms, expires_ms, subject, realm, username, login (the digest of the first of this
--   user's consecutive sessions in this browser), name (the user's name at the identity provider, or empty), sid.
-- A consent: version, created_ms, expires_ms, login, subject, answer (empty; "denied"; the digest of the code),
--   request (JSON, which has no line ends), sid.
-- A code: version, created_ms, expires_ms, subject, client_id, redirect_uri, code_challenge, username, scope, sid.
-- A code after its exchange: version, client_id, code_challenge, family digest.
-- An access token: version, issued_ms, expires_ms, family digest, client_id, subject, username, scope.
-- The tombstone of a family: version, ended_ms, reason (see `EndReason` in families.py), head, presented (the
--   generation whose replay ended the family, or empty), spent_ms (when that generation had been spent, or empty),
--   created_ms, client_id, subject, username, scope. Tombstones are for people to read. No request reads one, and no
--   family is restored from one.
-- The sid of these records tells from which login at an identity provider they come: a digest of its session id there,
--   "-" if the provider named none, empty in realm main.

local shard = string.match(KEYS[1] or '', '{(.-)}')

local function key_of(kind, name) return kind .. ':{' .. shard .. '}:' .. name end

-- Returns the time of Redis in ms. RedisClient adds a last argument, by which tests move the clock.
local function read_clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[#ARGV]
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

-- Returns the fields of a hash by name.
local function read_fields(key)
  local names_and_values, field = redis.call('HGETALL', key), {}
  for i = 1, #names_and_values, 2 do field[names_and_values[i]] = names_and_values[i + 1] end
  return field
end

-- Returns the scope as the field r has it: without the words realm and role, "main enduser …", if it is too long.
local function shorten_scope(scope)
  return #scope > 64 and string.gsub(string.sub(scope, 7), ' role:', ' ') or scope
end

-- Returns the time (ms) of the latest mark that covers records with this sid, or 0: the mark that a revokeAll set, or
-- that of the end of this login at an identity provider. A record created at or before the mark is revoked.
local function read_mark(subject, sid)
  local marked_ms = tonumber(redis.call('GET', key_of('mark', subject)) or '0')
  if sid == '' then return marked_ms end
  return math.max(marked_ms, tonumber(redis.call('GET', key_of('mark', subject .. ':' .. sid)) or '0'))
end

local SET_BACK_MS = 1000

-- Returns the time (ms) of creation for what a login starts, or nil if a mark was set since the login began. In realm
-- main `begun_ms` follows from the mark that the login began with (see reserve_attempt). For a login at an identity
-- provider it is a time, so a mark that lies ahead of the clock does not count there: the clock was set back.
local function date_login(subject, sid, begun_ms, now_ms)
  local marked_ms = read_mark(subject, sid)
  if begun_ms <= marked_ms and (sid == '' or marked_ms <= now_ms + SET_BACK_MS) then return nil end
  -- In the millisecond of a mark it must count as younger than the mark.
  return math.max(now_ms, marked_ms + 1)
end

-- Removes expired members of a user's index, and lets the index live as long as its longest-lived member.
local function trim_index(index_key, now_ms)
  redis.call('ZREMRANGEBYSCORE', index_key, '-inf', string.format('%d', now_ms))
  local longest = redis.call('ZRANGE', index_key, '-1', '-1', 'WITHSCORES')
  if longest[2] then redis.call('PEXPIRE', index_key, string.format('%d', math.max(1, longest[2] - now_ms))) end
end

local function add_member(subject, member, expires_ms, now_ms)
  local index_key = key_of('index', subject)
  redis.call('ZADD', index_key, string.format('%d', expires_ms), member)
  trim_index(index_key, now_ms)
end

local function forget_member(subject, member)
  redis.call('ZREM', key_of('index', subject), member)
  redis.call('ZREM', key_of('revoked', subject), member)
end
