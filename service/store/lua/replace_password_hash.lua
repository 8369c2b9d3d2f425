-- Stores a password hash, unless the user's record changed since it was read.
-- A stronger hash of the same password keeps the revision, and a new password has a new one.
-- KEYS     user_key
-- ARGV     revision new_revision record
-- RETURNS  replaced | changed
-- CLAUSES  RFC 6819 §5.1.4.1.3
local user_key = KEYS[1]
local revision, new_revision, record = ARGV[1], ARGV[2], ARGV[3]

if redis.call('HGET', user_key, 'revision') ~= revision then return { 'changed' } end
redis.call('HSET', user_key, 'record', record, 'revision', new_revision)
return { 'replaced' }
