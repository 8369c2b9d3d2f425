-- Starts a browser session after a login, unless the user's record changed since the check, or a mark was set since the
-- login began.
-- If the user logs in again in the same browser, the new session keeps the former session's login, so that the user can
-- still answer consents that are open in other tabs.
-- KEYS     browser_key user_key
-- DERIVED  mark, index, browser sessions
-- ARGV     browser_digest revision user_digest subject sid begun_ms:number realm username name
--          browser_name former_digest ttl_ms:number
-- RETURNS  started | changed | revoked
-- CLAUSES  SPEC §4.1, §5.2
-- USES     records browsers/pages

if (redis.call('HGET', user_key, 'revision') or '') ~= revision then return { 'changed' } end

local now_ms = read_clock()
local created_ms = date_login(user_digest, sid, begun_ms, now_ms)
if not created_ms then return { 'revoked' } end
local expires_ms = now_ms + ttl_ms
local former = former_digest ~= '' and find_browser_session(key_of('browser', former_digest), now_ms)
local login = former and former.user_digest == user_digest and former.login or browser_digest
local record = string.format('2\n%d\n%d\n', created_ms, expires_ms)
  .. table.concat({ user_digest, subject, realm, username, login, name, browser_name, created_ms, sid }, '\n')
redis.call('SET', browser_key, record, 'PX', ttl_ms)
add_member(user_digest, 'browser:' .. browser_digest, expires_ms, now_ms)
return { 'started' }
