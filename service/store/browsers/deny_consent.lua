-- Records that the user denies an authorization request, which can then no longer be allowed. A second call changes
-- nothing.
-- KEYS     consent_key browser_key
-- DERIVED  mark
-- ARGV     (none)
-- RETURNS  denied | repeated | answered | signed_out | unknown
-- CLAUSES  RFC 6749 §4.1.2.1, SPEC §4.1
-- USES     records browsers/pages

local now_ms = read_clock()
local consent = find_consent(consent_key, now_ms)
if not consent then return { 'unknown' } end
local session = find_browser_session(browser_key, now_ms)
if not session or session.login ~= consent.login then return { 'signed_out' } end
if consent.answer == 'denied' then return { 'repeated' } end
if consent.answer ~= '' then return { 'answered' } end
consent.answer = 'denied'
redis.call('SET', consent_key, format_consent(consent), 'KEEPTTL')
return { 'denied' }
