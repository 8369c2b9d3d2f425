-- Appends a batch of security events to their stream, which keeps about the newest, and ends when no more come.
-- KEYS     events_key
-- ARGV     events most lifetime_ms
-- RETURNS  appended
-- CLAUSES  SPEC §6, RFC 6819 §5.1.3
local events_key = KEYS[1]
local events, most, lifetime_ms = ARGV[1], ARGV[2], ARGV[3]

for _, event in ipairs(split(events, '\n')) do
  redis.call('XADD', events_key, 'MAXLEN', '~', most, '*', 'event', event)
end
redis.call('PEXPIRE', events_key, lifetime_ms)
return { 'appended' }
