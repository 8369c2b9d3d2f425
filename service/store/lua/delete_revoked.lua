-- Runs one bounded step of a revokeAll: deletes the records whose members mark_revoked moved to the key `revoked`.
-- These are families with their access tokens, codes, consents and browser sessions. With until_ms only records
-- created at or before it, or before a later mark, are deleted; the members of newer records return to the index.
-- KEYS     revoked_key mark_key index_key
-- DERIVED  families, access tokens, codes, consents, browser sessions named by the members, tombstones
-- ARGV     most_keys kept_member (not deleted; may be empty) until_ms (0: no limit) reason clock_offset_ms
-- RETURNS  more | finished
-- CLAUSES  SPEC §3, §4.4
local revoked_key, mark_key, index_key = KEYS[1], KEYS[2], KEYS[3]
local most_keys, kept_member, until_ms = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local reason, clock_offset_ms = ARGV[4], tonumber(ARGV[5])

local families = open_families()
local now_ms = read_clock(clock_offset_ms)
-- Without until_ms every record is deleted, even one younger than the mark: it may only look younger, because the clock
-- was set back before the mark was set.
local covered_ms = math.huge
-- An earlier call may have set a later mark than until_ms. The records that it covers are deleted as well.
if until_ms > 0 then covered_ms = math.max(until_ms, tonumber(redis.call('GET', mark_key) or '0')) end

-- Returns how many keys were deleted in addition to the family's own, or nil if the family may stay.
local function end_covered_family(digest)
  local family = families.read_whole(key_of('family', digest))
  if not family then return 0 end
  if family.created_ms > covered_ms then return nil end
  return families.end_whole(family, digest, reason, now_ms)
end

local function end_covered(kind, digest)
  if kind == 'family' then return end_covered_family(digest) end
  local names = { code = key_of('code', digest), consent = key_of('consent', digest), browser = key_of('browser', digest) }
  local text = covered_ms < math.huge and redis.call('GET', names[kind])
  if text and tonumber(read_lines(text, 'a ' .. kind)[2]) > covered_ms then return nil end
  redis.call('DEL', names[kind])
  return 0
end

local steps, returned = 0, false
for _, member in ipairs(redis.call('ZRANGE', revoked_key, 0, most_keys)) do
  if steps >= most_keys then break end
  if member ~= kept_member then
    local deleted = end_covered(string.match(member, '^(%l+):(.+)$'))
    local expires_ms = not deleted and redis.call('ZSCORE', revoked_key, member)
    redis.call('ZREM', revoked_key, member)
    if expires_ms then
      -- NX: if the index has the member again, that entry was written later and stays.
      redis.call('ZADD', index_key, 'NX', expires_ms, member)
      -- A new index gets its lifetime at once, because a broken record of a later member would end the script.
      if not returned then open_index().trim(index_key, now_ms) end
      returned = true
    end
    steps = steps + 1 + (deleted or 0)
  end
end
if returned then open_index().trim(index_key, now_ms) end
local kept = kept_member ~= '' and redis.call('ZSCORE', revoked_key, kept_member)
if redis.call('ZCARD', revoked_key) > (kept and 1 or 0) then return { 'more' } end
return { 'finished' }
