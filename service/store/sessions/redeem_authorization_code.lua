-- Exchanges an authorization code, once, and starts its family. If the user has too many families then, the one whose
-- entry in the index expires first ends. Returns five values for each that ended.
-- The caller has checked what cannot change (client, redirect_uri, code_challenge) against the record. This script
-- checks what can change: the code must still exist, must not be expired, and must not be covered by a mark.
-- KEYS     code_key redeemed_key family_key access_key
-- DERIVED  mark, index, revoked, families with their access tokens, tombstones
-- ARGV     code_digest family_digest access_digest secret_used remembered_ms
--          access_ttl_ms:number refresh_ttl_ms:number max_age_ms:number sessions_per_user:number
-- RETURNS  redeemed lives_ms family_digest client_id username subject scope … | repeated | revoked | unknown
-- CLAUSES  RFC 6749 §4.1.2, §4.1.3, §10.5
-- USES     records sessions/families sessions/new_families

local text = redis.call('GET', code_key)
if not text then
  if redis.call('EXISTS', redeemed_key) == 1 then return { 'repeated' } end
  return { 'unknown' }
end
local line = read_lines(text, 'an authorization code', 12)
local code_created_ms, code_expires_ms = line[2], line[3]
local user_digest, subject, client_id, code_challenge = line[4], line[5], line[6], line[8]
local username, scope, browser_name, sid = line[9], line[10], line[11], line[12]
local now_ms = read_clock()
if now_ms >= code_expires_ms then return { 'unknown' } end
if code_created_ms <= read_mark(user_digest, sid) then return { 'revoked' } end

-- A write that a full Redis refuses comes first, so that the code is not deleted when the exchange fails.
redis.call('SET', redeemed_key, table.concat({ '2', client_id, code_challenge, family_digest }, '\n'), 'PX', remembered_ms)
redis.call('DEL', code_key)
forget_member(user_digest, 'code:' .. code_digest)
local created_ms = math.max(now_ms, code_created_ms)
local family = {
  created_ms = created_ms, grant_type = 'a', secret_used = secret_used, user_digest = user_digest,
  subject = subject, client_id = client_id, username = username, scope = scope,
  browser_name = browser_name, sid = sid,
}
local lives_ms =
  start_family(family, family_digest, access_digest, now_ms, access_ttl_ms, refresh_ttl_ms, max_age_ms)
-- The new family is written first, because the limit counts it.
return { 'redeemed', lives_ms, unpack(displace_families(family, family_digest, sessions_per_user, now_ms)) }
