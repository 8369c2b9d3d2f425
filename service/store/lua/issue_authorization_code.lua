-- Writes an authorization code, indexed under its user so that revokeAll finds it.
-- KEYS     code_key
-- DERIVED  mark, index
-- ARGV     code_digest subject client_id redirect_uri code_challenge username scope ttl_ms clock_offset_ms
-- RETURNS  issued
-- CLAUSES  RFC 6749 §4.1.2
local code_key = KEYS[1]
local code_digest, subject, client_id, redirect_uri = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local code_challenge, username, scope = ARGV[5], ARGV[6], ARGV[7]
local ttl_ms, clock_offset_ms = tonumber(ARGV[8]), tonumber(ARGV[9])

local now_ms = read_clock(clock_offset_ms)
local created_ms = math.max(now_ms, read_mark(subject) + 1)
local expires_ms = now_ms + ttl_ms
local record = string.format('1\n%.0f\n%.0f\n', created_ms, expires_ms)
  .. table.concat({ subject, client_id, redirect_uri, code_challenge, username, scope }, '\n')
redis.call('SET', code_key, record, 'PX', ttl_ms)
index_member(subject, 'code:' .. code_digest, expires_ms, now_ms)
return { 'issued' }
