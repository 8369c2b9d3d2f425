-- Appends a batch of security events to each of their streams. A stream keeps about the newest `most` events, and
-- expires if no event comes for `lifetime_ms`. docs/reference/events-and-logs.md describes the entries to other programs.
-- KEYS     streams… (one or more)
-- ARGV     most lifetime_ms batches… (one for each stream)
-- RETURNS  appended
-- CLAUSES  SPEC §6, RFC 6819 §5.1.3
-- USES     records

local function append(stream_key, batch)
  if batch == '' then return end
  for _, event in ipairs(split_lines(batch)) do
    redis.call('XADD', stream_key, 'MAXLEN', '~', most, '*', 'version', '2', 'event', event)
  end
  redis.call('PEXPIRE', stream_key, lifetime_ms)
end

for i, stream_key in ipairs(streams) do append(stream_key, batches[i]) end
return { 'appended' }
