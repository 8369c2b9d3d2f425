-- Stores a stronger hash of the same password, unless the user's record changed since it was read.
-- KEYS     user_key
-- ARGV     revision record
-- RETURNS  replaced | changed
-- CLAUSES  RFC 6819 §5.1.4.1.3
local user_key = KEYS[1]
local revision, record = ARGV[1], ARGV[2]

if redis.call('HGET', user_key, 'revision') ~= revision then return { 'changed' } end
redis.call('HSET', user_key, 'record', record)
return { 'replaced' }
