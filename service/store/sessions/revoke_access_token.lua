-- Deletes one access token, for its own client only. The family of the token stays.
-- KEYS     access_key
-- ARGV     client_id
-- RETURNS  revoked scope username subject | foreign | unknown
-- CLAUSES  RFC 7009 §2.1, SPEC §4.3
-- USES     records

local text = redis.call('GET', access_key)
if not text then return { 'unknown' } end
local line = read_lines(text, 'an access token', 8)
if line[5] ~= client_id then return { 'foreign' } end
redis.call('DEL', access_key)
return { 'revoked', line[8], line[7], line[6] }
