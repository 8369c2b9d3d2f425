-- Appends a batch of security events to their two streams. A stream keeps about the newest `most` events, and expires
-- if no event comes for `lifetime_ms`.
-- KEYS     events_key strangers_key
-- ARGV     events strangers most lifetime_ms
-- RETURNS  appended
-- CLAUSES  SPEC §6, RFC 6819 §5.1.3
-- USES     records
local events_key, strangers_key = KEYS[1], KEYS[2]
local events, strangers, most, lifetime_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local function append(stream_key, batch)
  if batch == '' then return end
  for _, event in ipairs(split(batch, '\n')) do
    redis.call('XADD', stream_key, 'MAXLEN', '~', most, '*', 'event', event)
  end
  redis.call('PEXPIRE', stream_key, lifetime_ms)
end

append(events_key, events)
append(strangers_key, strangers)
return { 'appended' }
