-- Writes a client's record and its web origins. If the client lost a right, records that its
-- sessions must be scanned for it. Stores the seed entry that the record comes from.
-- KEYS     client_key scans_key seed_key
-- DERIVED  origins
-- ARGV     client_id record mark (empty, or "grant_or_scope:" or "refresh:" and random text)
--          old_origins:json new_origins:json (JSON lists) applied (empty: the entry in Redis stays)
-- RETURNS  written
-- CLAUSES  RFC 6749 §2, §3.1.2.2
-- USES     records

redis.call('SET', client_key, record)
for _, origin in ipairs(old_origins) do redis.call('SREM', key_of('origin', origin), client_id) end
for _, origin in ipairs(new_origins) do redis.call('SADD', key_of('origin', origin), client_id) end
if mark ~= '' then
  -- A pending scan for the loss of `refresh` covers every other loss, so the new mark is one for `refresh`, too.
  local pending = redis.call('HGET', scans_key, client_id) or ''
  if string.find(pending, '^refresh:') then mark = string.gsub(mark, '^.*:', 'refresh:') end
  redis.call('HSET', scans_key, client_id, mark)
end
if applied ~= '' then redis.call('HSET', seed_key, 'client:' .. client_id, applied) end
return { 'written' }
