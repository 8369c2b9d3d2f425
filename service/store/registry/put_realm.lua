-- Writes or deletes a realm's record. If the realm lost a right, records that the sessions of its users must be
-- scanned. Stores or deletes the seed entry that the record comes from.
-- KEYS     realm_key scans_key seed_key
-- ARGV     realm record (empty: it is deleted) mark (empty: no session must end) applied (empty: it is deleted)
-- RETURNS  written
-- CLAUSES  SPEC §2.3, §3

if record == '' then redis.call('DEL', realm_key) else redis.call('SET', realm_key, record) end
if mark ~= '' then redis.call('HSET', scans_key, realm, mark) end
if applied == '' then
  redis.call('HDEL', seed_key, 'realm:' .. realm)
else
  redis.call('HSET', seed_key, 'realm:' .. realm, applied)
end
return { 'written' }
