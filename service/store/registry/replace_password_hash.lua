-- Stores a password hash, unless the user's record changed since it was read, or a mark was set since the login began
-- that checked the former password. A stronger hash of the same password keeps the revision, and a new password has a
-- new one. `former_hash` is empty, or the hash that the record must still have: of many logins at once, the first
-- replaces it.
-- KEYS     user_key mark_key
-- ARGV     revision new_revision record begun_ms:number former_hash
-- RETURNS  replaced | changed
-- CLAUSES  RFC 6819 §5.1.4.1.3
-- USES     records

if redis.call('HGET', user_key, 'revision') ~= revision then return { 'changed' } end
if begun_ms <= read_mark_at(mark_key) then return { 'changed' } end
if not string.find(redis.call('HGET', user_key, 'record'), former_hash, 1, true) then return { 'changed' } end
redis.call('HSET', user_key, 'record', record, 'revision', new_revision)
return { 'replaced' }
