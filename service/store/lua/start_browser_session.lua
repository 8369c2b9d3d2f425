-- Starts a browser session after a login, provided that the user's record is still the one that was checked.
-- KEYS     browser_key user_key
-- DERIVED  mark, index
-- ARGV     browser_digest revision subject realm username ttl_ms clock_offset_ms
-- RETURNS  started | changed
-- CLAUSES  SPEC §4.1, §5.2
local browser_key, user_key = KEYS[1], KEYS[2]
local browser_digest, revision, subject, realm, username = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ttl_ms, clock_offset_ms = tonumber(ARGV[6]), tonumber(ARGV[7])

if (redis.call('HGET', user_key, 'revision') or '') ~= revision then return { 'changed' } end

local now_ms = read_clock(clock_offset_ms)
local created_ms = math.max(now_ms, read_mark(subject) + 1)
local expires_ms = now_ms + ttl_ms
local record = string.format('1\n%.0f\n%.0f\n', created_ms, expires_ms)
  .. table.concat({ subject, realm, username }, '\n')
redis.call('SET', browser_key, record, 'PX', ttl_ms)
index_member(subject, 'browser:' .. browser_digest, expires_ms, now_ms)
return { 'started' }
