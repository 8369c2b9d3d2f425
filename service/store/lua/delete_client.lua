-- Deletes a client's record, removes the client from its web origins, and records that its sessions must be ended.
-- KEYS     client_key owed_key
-- DERIVED  origins
-- ARGV     client_id origins (a JSON list)
-- RETURNS  deleted
-- CLAUSES  RFC 6749 §2, SPEC §3
local client_key, owed_key = KEYS[1], KEYS[2]
local client_id, origins = ARGV[1], cjson.decode(ARGV[2])

redis.call('DEL', client_key)
for _, origin in ipairs(origins) do redis.call('SREM', key_of('origin', origin), client_id) end
redis.call('HSET', owed_key, client_id, 'refresh')
return { 'deleted' }
