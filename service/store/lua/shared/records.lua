-- Documents the records of a user's shard, and defines what scripts of all kinds need. scripts.py puts those definitions
-- of this folder that a script uses in front of it. A definition ends before an empty line that is followed by text
-- without indentation.
--
-- Redis converts the number arguments of `redis.call` slowly, and `%d` is faster than `%.0f`. So the scripts format their
-- numbers themselves. A time in ms is exact in both.
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
--   t           times in ms, "created expires access_until kept_until": the time of the grant (since 1970), and since
--               the grant the end of the family unless it is refreshed, the end of its last access token, and the end
--               of its key and of its entry in the index (see `look_ahead`). Version 0.2.0 did not write the last one
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

-- Returns the time (ms) of the mark that a revokeAll set, or 0. A record created at or before the mark is revoked.
local function read_mark(subject) return tonumber(redis.call('GET', key_of('mark', subject)) or '0') end

-- Opens the functions for the index of a user. Redis creates every function of a script at each call, so functions that
-- few calls need are created when they are opened.
local function open_index()
  local index = {}

  -- Removes expired members, and lets the index live as long as its longest-lived member.
  function index.trim(index_key, now_ms)
    redis.call('ZREMRANGEBYSCORE', index_key, '-inf', string.format('%d', now_ms))
    local longest = redis.call('ZRANGE', index_key, '-1', '-1', 'WITHSCORES')
    if longest[2] then redis.call('PEXPIRE', index_key, string.format('%d', math.max(1, longest[2] - now_ms))) end
  end

  function index.add(subject, member, expires_ms, now_ms)
    local index_key = key_of('index', subject)
    redis.call('ZADD', index_key, string.format('%d', expires_ms), member)
    index.trim(index_key, now_ms)
  end

  return index
end

local function forget_member(subject, member)
  redis.call('ZREM', key_of('index', subject), member)
  redis.call('ZREM', key_of('revoked', subject), member)
end
