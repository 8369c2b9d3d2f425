-- Ends a browser session, so that the next page asks for a login again.
-- KEYS     browser_key
-- DERIVED  index, revoked
-- ARGV     browser_digest
-- RETURNS  ended | unknown
-- CLAUSES  SPEC §4.1
-- USES     records

local text = redis.call('GET', browser_key)
if not text then return { 'unknown' } end
local user_digest = read_lines(text, 'a browser session', 12)[4]
redis.call('DEL', browser_key)
forget_member(user_digest, 'browser:' .. browser_digest)
return { 'ended' }
