-- Stores an authorization request until the user of the browser session answers it, and notes that the session is used.
-- KEYS     consent_key browser_key
-- DERIVED  mark, index
-- ARGV     consent_digest request ttl_ms:number
-- RETURNS  held | signed_out
-- CLAUSES  RFC 6749 §10.12, SPEC §4.1
-- USES     records browsers/pages

local now_ms = read_clock()
local session = find_browser_session(browser_key, now_ms)
if not session then return { 'signed_out' } end
local consent = {
  created_ms = math.max(now_ms, session.created_ms),
  expires_ms = math.min(now_ms + ttl_ms, session.expires_ms),
  login = session.login, user_digest = session.user_digest, answer = '',
  request = request, sid = session.sid,
}
session.lines[11] = now_ms
redis.call('SET', browser_key, table.concat(session.lines, '\n'), 'KEEPTTL')
redis.call('SET', consent_key, format_consent(consent), 'PX', consent.expires_ms - now_ms)
add_member(session.user_digest, 'consent:' .. consent_digest, consent.expires_ms, now_ms)
return { 'held' }
