-- Starts a session after a password login, unless the user's record changed since the password was verified, or a mark
-- was set since the login began. If the user has too many sessions then, the one whose entry in the index expires first
-- ends. Returns five values for each that ended.
-- KEYS     family_key access_key user_key
-- DERIVED  mark, index, revoked, families with their access tokens, tombstones
-- ARGV     family_digest access_digest revision user_digest subject sid begun_ms:number client_id username scope
--          secret_used access_ttl_ms:number refresh_ttl_ms:number max_age_ms:number sessions_per_user:number
-- RETURNS  started lives_ms family_digest client_id username subject scope … | changed | revoked
-- CLAUSES  RFC 6749 §4.3.3, SPEC §4.2
-- USES     records sessions/families sessions/new_families

if (redis.call('HGET', user_key, 'revision') or '') ~= revision then return { 'changed' } end

local now_ms = read_clock()
local created_ms = date_login(user_digest, sid, begun_ms, now_ms)
if not created_ms then return { 'revoked' } end
local family = {
  created_ms = created_ms, grant_type = 'p', secret_used = secret_used, user_digest = user_digest,
  subject = subject, client_id = client_id, username = username, scope = scope,
  browser_name = '', sid = sid,
}
local lives_ms =
  start_family(family, family_digest, access_digest, now_ms, access_ttl_ms, refresh_ttl_ms, max_age_ms)
-- The first write must be one that a full Redis refuses: after any other write it would accept the rest.
return { 'started', lives_ms, unpack(displace_families(family, family_digest, sessions_per_user, now_ms)) }
