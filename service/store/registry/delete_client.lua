-- Deletes a client's record, removes the client from its web origins, and records that its sessions must be ended.
-- The seed entry that the record came from stays, unless it is to be forgotten.
-- KEYS     client_key scans_key seed_key
-- DERIVED  origins
-- ARGV     client_id origins:json (a JSON list) mark is_forgotten ("0" or "1")
-- RETURNS  deleted
-- CLAUSES  RFC 6749 §2, SPEC §3
-- USES     records

redis.call('DEL', client_key)
for _, origin in ipairs(origins) do redis.call('SREM', key_of('origin', origin), client_id) end
redis.call('HSET', scans_key, client_id, mark)
if is_forgotten == '1' then redis.call('HDEL', seed_key, 'client:' .. client_id) end
return { 'deleted' }
