-- Documents the records of sessions, and defines what scripts of all kinds need.
--
-- Scripts format numbers themselves, because Redis converts the number arguments of `redis.call` slowly.
--
-- Every record below is lines, with version "2" in the first. A reader ignores lines behind those that it knows, and a
-- script that writes a record anew keeps them. Python parses these records in records.py, and those of access tokens in
-- access_record.py of the gateway library.
--
-- A family, the record of one grant: first what never changes:
--     version, created_ms, grant_type ("p" for password, "a" for authorization_code), secret_used ("1" if the client
--     authenticated with a secret, or "0"), user_digest, subject, client_id, username, scope, browser_name,
--     sid,
--   and then what a refresh changes:
--     expires_ms        the end of the family unless it is refreshed
--     access_until_ms   the end of its last access token
--     indexed_until_ms  the score of its member in the user's index (see `write_family`)
--     head              the generation of the one live refresh token
--     oldest            the oldest generation whose time may be known; a replay of an older one is too late
--     replayed          empty, or "generation:streak:times": the last replayed generation, how many in a row were
--                       replayed, and how often this one was (at most REPLAYS_COUNTED)
--     tokens            the number of access tokens from the grant and from refreshes, and then, the oldest first, of
--                       each " generation:issued:lives:digest": the generation that bought it (0 for the grant), when
--                       it was issued (ms since created_ms), which is when the generation was spent, and for how long
--     replay_tokens     the same for access tokens from replays, whose `issued` is not a time of spending
--     spent_times       " generation:issued" of the tokens that left the list within the grace, the oldest first. Each
--                       also stands for the generations between the previous entry and itself
-- A browser session: version, created_ms, expires_ms, user_digest, subject, realm, username, login (the digest of the
--   first of this user's consecutive sessions in this browser), name (the user's name at the identity provider, or
--   empty), browser_name, used_ms (when it last asked for a consent), sid.
-- A consent: version, created_ms, expires_ms, login, user_digest, answer (empty; "denied"; the digest of the code),
--   request (JSON, which has no line ends), sid.
-- A code: version, created_ms, expires_ms, user_digest, subject, client_id, redirect_uri, code_challenge, username,
--   scope, browser_name, sid.
-- A code after its exchange: version, client_id, code_challenge, family digest.
-- An access token: version, issued_ms, expires_ms, family digest, client_id, subject, username, scope.
-- The tombstone of a family: version, ended_ms, reason (see `EndReason` in families.py), head, presented (the
--   generation whose replay ended the family, or empty), spent_ms (when that generation had been spent, or empty),
--   created_ms, client_id, subject, username, scope. Tombstones are for people to read. No request reads one, and no
--   family is restored from one.
-- The user_digest names the keys of the user, and the subject is what other systems know the user by (User.subject).
-- The browser_name tells family and system of the browser of the login, as in "Firefox/Windows". It is empty if they are
-- unknown, and for a login by the password grant.
-- The sid of these records tells from which login at an identity provider they come: a digest of its session id there,
--   "-" if the provider named none, empty in realm main.

local shard = string.match(KEYS[1] or '', '{(.-)}')

local function key_of(kind, name) return kind .. ':{' .. shard .. '}:' .. name end

-- Returns the time of Redis in ms. RedisClient adds a last argument, by which tests move the clock.
local function read_clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[#ARGV]
end

local function split_lines(text)
  local lines = {}
  for line in string.gmatch(text .. '\n', '(.-)\n') do lines[#lines + 1] = line end
  return lines
end

-- Refuses a record that this version cannot read, which is neither accepted nor rejected, and neither renewed nor
-- deleted, except that a revokeAll of everything deletes codes, consents and browser sessions unread. Python treats the
-- word UNREADABLE as an outage.
local function refuse_record(what)
  error('UNREADABLE ' .. what .. ' has a record of another version, or a broken one', 0)
end

-- Returns the lines of a record of at least `count`. The second and the third are times (ms).
local function read_lines(text, what, count)
  local line = split_lines(text)
  line[2], line[3] = tonumber(line[2]), tonumber(line[3])
  if line[1] ~= '2' or not (line[2] and line[3] and line[count]) then refuse_record(what) end
  return line
end

local function read_mark_at(key) return tonumber(redis.call('GET', key) or '0') or refuse_record('a revokeAll') end

-- Returns the time (ms) of the latest mark that covers records with this sid, or 0: the mark that a revokeAll set, or
-- that of the end of this login at an identity provider. A record created at or before the mark is revoked.
local function read_mark(user_digest, sid)
  local marked_ms = read_mark_at(key_of('mark', user_digest))
  return sid == '' and marked_ms or math.max(marked_ms, read_mark_at(key_of('mark', user_digest .. ':' .. sid)))
end

local SET_BACK_MS = 1000

-- Returns the time (ms) of creation for what a login starts, or nil if a mark was set since the login began. In realm
-- main `begun_ms` follows from the mark that the login began with (see reserve_attempt). For a login at an identity
-- provider it is a time, so a mark that lies ahead of the clock does not count there: the clock was set back.
local function date_login(user_digest, sid, begun_ms, now_ms)
  local marked_ms = read_mark(user_digest, sid)
  if begun_ms <= marked_ms and (sid == '' or marked_ms <= now_ms + SET_BACK_MS) then return nil end
  -- In the millisecond of a mark it must count as younger than the mark.
  return math.max(now_ms, marked_ms + 1)
end

-- Adds a member to a user's index, and removes expired ones. The index lives as long as its longest-lived member.
local function add_member(user_digest, member, expires_ms, now_ms)
  local index_key = key_of('index', user_digest)
  redis.call('ZADD', index_key, string.format('%d', expires_ms), member)
  redis.call('ZREMRANGEBYSCORE', index_key, '-inf', string.format('%d', now_ms))
  local longest = redis.call('ZRANGE', index_key, '-1', '-1', 'WITHSCORES')
  redis.call('PEXPIRE', index_key, string.format('%d', math.max(1, longest[2] - now_ms)))
end

local function forget_member(user_digest, member)
  redis.call('ZREM', key_of('index', user_digest), member)
  redis.call('ZREM', key_of('revoked', user_digest), member)
end
