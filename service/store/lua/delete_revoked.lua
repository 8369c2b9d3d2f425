-- One bounded step of a revokeAll: deletes what was set aside: families with their access tokens, codes, consents, browser sessions.
-- KEYS     revoked_key
-- DERIVED  index, families, access tokens, codes, consents, browser sessions named by the members
-- ARGV     most_keys kept_member
-- RETURNS  more | finished
-- CLAUSES  SPEC §3, §4.4
local revoked_key = KEYS[1]
local most_keys, kept_member = tonumber(ARGV[1]), ARGV[2]

local deleted = 0
for _, member in ipairs(redis.call('ZRANGE', revoked_key, 0, most_keys)) do
  if deleted >= most_keys then return { 'more' } end
  if member ~= kept_member then
    local kind, digest = string.match(member, '^(%l+):(.+)$')
    if kind == 'family' then
      local text = redis.call('GET', key_of('family', digest))
      if text then deleted = deleted + end_family(parse_family(text), digest) end
    end
    if kind == 'code' then redis.call('DEL', key_of('code', digest)) end
    if kind == 'consent' then redis.call('DEL', key_of('consent', digest)) end
    if kind == 'browser' then redis.call('DEL', key_of('browser', digest)) end
    redis.call('ZREM', revoked_key, member)
    deleted = deleted + 1
  end
end
local kept = kept_member ~= '' and redis.call('ZSCORE', revoked_key, kept_member)
if redis.call('ZCARD', revoked_key) > (kept and 1 or 0) then return { 'more' } end
return { 'finished' }
