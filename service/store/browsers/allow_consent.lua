-- Records that the user allows an authorization request: consumes the request and issues the code, once.
-- The code is derived from the consent, so a second call (a double click) has the same code. It issues no other code,
-- and returns `repeated` as long as the code waits for its exchange. If the user has logged in again since the request,
-- the code comes from the later login.
-- KEYS     consent_key browser_key user_key code_key
-- DERIVED  mark, index
-- ARGV     revision code_digest client_id redirect_uri code_challenge username scope code_ttl_ms:number
-- RETURNS  issued | repeated | answered | changed | signed_out | unknown
-- CLAUSES  RFC 6749 §4.1.2, §10.12, SPEC §4.1
-- USES     records browsers/pages

local now_ms = read_clock()
local consent = find_consent(consent_key, now_ms)
if not consent then return { 'unknown' } end
local session = find_browser_session(browser_key, now_ms)
if not session or session.login ~= consent.login then return { 'signed_out' } end
if consent.answer == code_digest and redis.call('EXISTS', code_key) == 1 then return { 'repeated' } end
if consent.answer ~= '' then return { 'answered' } end
if (redis.call('HGET', user_key, 'revision') or '') ~= revision then return { 'changed' } end

local expires_ms = now_ms + code_ttl_ms
local created_ms = math.max(now_ms, consent.created_ms, session.created_ms)
local record = string.format('2\n%d\n%d\n', created_ms, expires_ms)
  .. table.concat({
    consent.user_digest, session.subject, client_id, redirect_uri, code_challenge, username, scope,
    session.browser_name, session.sid,
  }, '\n')
redis.call('SET', code_key, record, 'PX', code_ttl_ms)
add_member(consent.user_digest, 'code:' .. code_digest, expires_ms, now_ms)
consent.answer = code_digest
redis.call('SET', consent_key, format_consent(consent), 'KEEPTTL')
return { 'issued' }
