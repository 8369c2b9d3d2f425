-- Defines how browser sessions and consents are read and written.

-- Returns the browser session, or nil if it is over or revoked.
local function find_browser_session(browser_key, now_ms)
  local text = redis.call('GET', browser_key)
  if not text then return nil end
  local line = read_lines(text, 'a browser session')
  local session = {
    created_ms = tonumber(line[2]), expires_ms = tonumber(line[3]), subject = line[4], login = line[7],
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
    request = line[7],
  }
  if now_ms >= consent.expires_ms or consent.created_ms <= read_mark(consent.subject) then return nil end
  return consent
end

local function format_consent(consent)
  return string.format('2\n%d\n%d\n', consent.created_ms, consent.expires_ms) .. table.concat({
    consent.login, consent.subject, consent.answer, consent.request,
  }, '\n')
end
