-- Ends a family and its access tokens, for its own client only. A tombstone with the reason remains.
-- KEYS     family_key
-- DERIVED  index, revoked, access tokens of the family, its tombstone
-- ARGV     family_digest client_id reason
-- RETURNS  ended scope username subject | foreign | unknown
-- CLAUSES  RFC 7009 §2.1, RFC 6749 §4.1.2, SPEC §3, §4.3
-- USES     records sessions/families

local family = read_family(family_key)
if not family then return { 'unknown' } end
if family.client_id ~= client_id then return { 'foreign' } end
local now_ms = read_clock()
end_family(family, family_digest, reason, now_ms)
return { 'ended', family.scope, family.username, family.subject }
