-- Defines how browser sessions and consents are read and written.

-- Returns the lines of a record, or nil if it is expired or revoked.
local function find_live(key, what, digest_position, sid_position, now_ms)
  local text = redis.call('GET', key)
  local line = text and read_lines(text, what, sid_position)
  if not line or now_ms >= line[3] then return nil end
  if line[2] <= read_mark(line[digest_position], line[sid_position]) then return nil end
  return line
end

local function find_browser_session(browser_key, now_ms)
  local line = find_live(browser_key, 'a browser session', 4, 12, now_ms)
  return line and {
    created_ms = line[2], expires_ms = line[3], user_digest = line[4], subject = line[5], login = line[8],
    browser_name = line[10], sid = line[12], lines = line,
  }
end

-- Returns the consent, even if it is answered.
local function find_consent(consent_key, now_ms)
  local line = find_live(consent_key, 'a consent', 5, 8, now_ms)
  return line and {
    created_ms = line[2], expires_ms = line[3], login = line[4], user_digest = line[5], answer = line[6],
    request = line[7], sid = line[8], further = { unpack(line, 9) },
  }
end

local function format_consent(consent)
  return string.format('2\n%d\n%d\n', consent.created_ms, consent.expires_ms) .. table.concat({
    consent.login, consent.user_digest, consent.answer, consent.request, consent.sid, unpack(consent.further or {}),
  }, '\n')
end
