-- Runs one bounded step of a revokeAll: deletes the records whose members mark_revoked put into the key `revoked`.
-- These are families with their access tokens, codes, consents and browser sessions. If the key has a member that tells
-- a limit, only records that a mark covers are deleted, also from the index. If a failover has lost the mark of this
-- revokeAll, the verdict is `lost`, and the caller must mark again.
-- KEYS     mark_key index_key revoked_key
-- DERIVED  marks, families, access tokens, codes, consents, browser sessions named by the members, tombstones
-- ARGV     most_keys kept_member (not deleted; may be empty) marked_ms reason
-- RETURNS  more | finished | lost
-- CLAUSES  SPEC §3, §4.4
-- USES     records families
local mark_key, index_key, revoked_key = KEYS[1], KEYS[2], KEYS[3]
local most_keys, kept_member, marked_ms = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local reason = ARGV[4]

if tonumber(redis.call('GET', mark_key) or '0') < marked_ms then return { 'lost' } end
local limit = find_limit(revoked_key)
local ended_sid = limit and string.match(limit, '^sid:(.*)')
local now_ms = read_clock()

-- Returns true if a mark covers the record. Another call may have set a later mark. A mark for now covers all that was
-- set aside with it, even a record that looks younger because the clock was set back.
local function is_covered(created_ms, subject, sid)
  return not limit or ended_sid and (sid == ended_sid or sid == '-') or created_ms <= read_mark(subject, sid)
end

-- Returns how many keys were deleted in addition to the family's own, or nil if the family may stay.
local function end_covered_family(digest)
  local family = read_whole_family(key_of('family', digest))
  if not family then return 0 end
  if not is_covered(family.created_ms, family.subject, family.field.s or '') then return nil end
  return end_whole_family(family, digest, reason, now_ms)
end

local function end_covered(kind, digest)
  if kind == 'family' then return end_covered_family(digest) end
  local names = { code = key_of('code', digest), consent = key_of('consent', digest), browser = key_of('browser', digest) }
  local text = limit and redis.call('GET', names[kind])
  if text then
    local line, subject_position = read_lines(text, 'a ' .. kind), kind == 'consent' and 5 or 4
    if not is_covered(tonumber(line[2]), line[subject_position], line[#line]) then return nil end
  end
  redis.call('DEL', names[kind])
  return 0
end

local steps = 0
for _, member in ipairs(redis.call('ZRANGE', revoked_key, 0, most_keys + 1)) do
  if steps >= most_keys then break end
  if member ~= kept_member and member ~= limit then
    local deleted = end_covered(string.match(member, '^(%l+):(.+)$'))
    redis.call('ZREM', revoked_key, member)
    if limit and deleted then redis.call('ZREM', index_key, member) end
    steps = steps + 1 + (deleted or 0)
  end
end
local kept = kept_member ~= '' and redis.call('ZSCORE', revoked_key, kept_member)
local left = redis.call('ZCARD', revoked_key) - (kept and 1 or 0) - (limit and 1 or 0)
if left > 0 then return { 'more' } end
if limit and not kept then redis.call('DEL', revoked_key) end
return { 'finished' }
