-- Spends one generation of a family: issues an access token and moves the head to the next refresh token.
-- A replay of a spent generation also gets an access token within the grace; a later replay ends the family.
-- KEYS     family_key access_key
-- DERIVED  mark, index, revoked, access tokens of the family, its tombstone
-- ARGV     family_digest access_digest generation client_id secret_used wanted_scope allowed_scope
--          access_ttl_ms refresh_ttl_ms max_age_ms grace_ms clock_offset_ms
-- RETURNS  rotated | repeated | recovered, each with: head lives_ms scope username streak replays
--          replayed username | foreign | without_secret | withdrawn | beyond | unknown
-- CLAUSES  RFC 6749 §6, §10.4, RFC 6819 §5.2.2.3, SPEC §3, §4.2
local family_key, access_key = KEYS[1], KEYS[2]
local family_digest, access_digest, generation, client_id = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local secret_used, wanted_scope, allowed_scope = ARGV[5], ARGV[6], ARGV[7]
local access_ttl_ms, refresh_ttl_ms = tonumber(ARGV[8]), tonumber(ARGV[9])
local max_age_ms, grace_ms, clock_offset_ms = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])

local now_ms = read_clock(clock_offset_ms)
local family, displaced, previous = read_family(family_key, access_field_of(generation), access_field_of(generation - 1))
if not family then return { 'unknown' } end
-- The client is checked first: a replay by another client must not end this family.
if family.client_id ~= client_id then return { 'foreign' } end
local uncapped_ms = family.expires_ms
family.expires_ms = cap_lifetime(family.created_ms, family.expires_ms, max_age_ms)
if now_ms >= family.expires_ms or family.created_ms <= read_mark(family.subject) then return { 'unknown' } end
if family.secret_used == '1' and secret_used ~= '1' then return { 'without_secret' } end

-- Returns when this generation was spent, or nil if the record no longer has the time. From the floor on, the time is
-- that of the same or the next higher generation that has an entry. Below the floor, it is the time of its slice.
local function find_spent_ms(field)
  local nearest, spent_ms
  for name, value in pairs(field) do
    if generation >= family.floor and string.find(name, '^a%d') then
      local given_ms, bought_by = parse_entry(value)
      if generation <= bought_by and (not nearest or bought_by < nearest) then nearest, spent_ms = bought_by, given_ms end
    elseif generation < family.floor and string.find(name, '^s%d') then
      local first, last, ms = string.match(value, '^(%d+):(%d+):(%d+)$')
      if generation >= tonumber(first) and generation <= tonumber(last) then
        spent_ms = math.max(spent_ms or 0, tonumber(ms))
      end
    end
  end
  return spent_ms
end

-- All fields are read for a replay, and for a generation above the head, because Redis has lost the writes up to it.
local is_replay = generation < family.head
local whole = generation ~= family.head and read_whole_family(family_key)
if is_replay then
  local spent_ms = find_spent_ms(whole.field)
  if not spent_ms or now_ms - spent_ms >= grace_ms then
    local replay = string.format('%d\n%s', generation, spent_ms and string.format('%.0f', spent_ms) or '')
    end_family(whole, family_digest, 'replayed', now_ms, replay)
    return { 'replayed', family.username }
  end
  family.streak, family.replays = whole.field.k or '', whole.field.n or ''
end
if not covers(allowed_scope, family.scope) then return { 'withdrawn' } end
local scope = family.scope
if wanted_scope ~= '' then
  if not covers(family.scope, wanted_scope) then return { 'beyond' } end
  local realm = string.match(family.scope, '^realm:%S+')
  scope = string.find(wanted_scope, '^realm:') and wanted_scope or realm .. ' ' .. wanted_scope
end

-- Counts this generation as replayed. Returns how many generations in a row were replayed, or 0 if this generation was
-- also the last one replayed, which changes nothing.
local function count_streak()
  local last, count = string.match(family.streak, '(%d+):(%d+)')
  last, count = tonumber(last or -1), tonumber(count or 0)
  if generation == last then return 0 end
  count = generation == last + 1 and count + 1 or 1
  family.streak = string.format('%d:%d', generation, count)
  return count
end

-- Counts this replay. Returns how often this generation was replayed; REPLAYS_COUNTED stands for that many or more.
-- Counts are kept for the REPLAYED_GENERATIONS generations that were replayed last. A generation whose replays are no
-- longer answered is dropped.
local function count_replay()
  local known, kept = 0, {}
  for name, count in string.gmatch(family.replays, '(%d+):(%d+)') do
    if tonumber(name) == generation then
      known = tonumber(count)
    elseif tonumber(name) >= family.floor or family.merged ~= '' then
      kept[#kept + 1] = name .. ':' .. count
    end
  end
  local count = math.min(known + 1, REPLAYS_COUNTED)
  if #kept >= REPLAYED_GENERATIONS then table.remove(kept, 1) end
  kept[#kept + 1] = string.format('%d:%d', generation, count)
  family.replays = table.concat(kept, ' ')
  return count
end

-- Returns the entries of the access tokens that were issued to replays and have not expired.
local function list_replayed()
  local live = {}
  for at = 1, #family.replayed, ENTRY_WIDTH do
    local entry = string.sub(family.replayed, at, at + ENTRY_WIDTH - 1)
    if parse_entry(entry) > now_ms then live[#live + 1] = entry end
  end
  return live
end

-- Returns true if the family has too many access tokens: those of replays in `live`, and those of other refreshes in
-- `field`. Redis is asked which of the latter still exist only if their number can matter.
local function are_too_many(live, field)
  local keys = {}
  for name, entry in pairs(field) do
    if string.find(name, '^a%d') then keys[#keys + 1] = access_key_of(entry) end
  end
  return #live + #keys > ACCESS_TOKENS_PER_FAMILY
    and #live + (#keys > 0 and redis.call('EXISTS', unpack(keys)) or 0) > ACCESS_TOKENS_PER_FAMILY
end

-- Deletes the oldest access token that was issued to a replay.
local function delete_oldest(live) redis.call('DEL', access_key_of(table.remove(live, 1))) end

-- If the clock was set back, the time of the previous spend is used. If Redis has lost that entry, the latest is used.
local previous_ms, previous_generation = 0, -1
if previous then previous_ms, previous_generation = parse_entry(previous) end
if whole and not is_replay then
  for name, entry in pairs(whole.field) do
    if string.find(name, '^a%d') then previous_ms = math.max(previous_ms, (parse_entry(entry))) end
  end
end
local spent_ms = math.max(now_ms, previous_ms)
local is_idle = previous_generation == generation - 1
  and now_ms >= math.max(family.access_until_ms, previous_ms + grace_ms)
if not is_replay then family.expires_ms = cap_lifetime(family.created_ms, now_ms + refresh_ttl_ms, max_age_ms) end
local access_expires_ms = add_access_token(family, family_digest, access_digest, scope, now_ms, access_ttl_ms)
local lives_ms = access_expires_ms - now_ms

if is_replay then
  local streak, count, live = count_streak(), count_replay(), list_replayed()
  live[#live + 1] = format_entry(access_digest, access_expires_ms, generation)
  -- A replay displaces only tokens of earlier replays, so one token of a replay may exceed ACCESS_TOKENS_PER_FAMILY.
  while #live > 1 and are_too_many(live, whole.field) do delete_oldest(live) end
  family.expires_ms = uncapped_ms
  redis.call('HSET', family_key, 't', format_times(family), 'p', table.concat(live), 'k', family.streak, 'n', family.replays)
  return { 'repeated', family.head, lives_ms, scope, family.username, streak, count }
end

local changed = { 'h', generation + 1, 't', format_times(family),
  access_field_of(generation), format_entry(access_digest, spent_ms, generation) }
local function change(name, value) changed[#changed + 1], changed[#changed + 2] = name, value end

-- The fields of generations below `needed` may be deleted from `needed_until_ms` on.
local needed, needed_until_ms = parse_old(family)
if is_idle then needed, needed_until_ms = generation, now_ms end
local is_pruned = now_ms >= needed_until_ms
if not is_pruned then needed = 0 end

-- Deletes the fields of all slices, because a changed grace gives slices another width. The caller writes one field for
-- all of them, with the latest time. Returns the first generation of that field; generations that neither the old nor
-- the new grace covers are left out.
local function join_slices(earlier_width)
  local names, first = {}, family.floor
  for i = 0, GRACE_SLICES do names[i + 1] = 's' .. i end
  for _, value in ipairs(redis.call('HMGET', family_key, unpack(names))) do
    local lowest, ms = string.match(value or '', '^(%d+):%d+:(%d+)$')
    if lowest and spent_ms - ms < math.max(grace_ms, earlier_width * GRACE_SLICES) then
      first = math.min(first, tonumber(lowest))
    end
  end
  redis.call('HDEL', family_key, unpack(names))
  return first
end

-- The new entry overwrites the field of an older entry, whose access token ends. The time of the older entry is kept
-- while the grace covers it: the grace is cut into GRACE_SLICES slices, and the times of one slice share a field. There
-- is one more field than slices, so a field that a later slice overwrites is older than the grace.
if displaced then
  redis.call('DEL', access_key_of(displaced))
  local displaced_ms, bought_by = parse_entry(displaced)
  if bought_by >= family.floor then
    if bought_by >= needed and spent_ms - displaced_ms < grace_ms then
      local width = math.ceil(grace_ms / GRACE_SLICES)
      local slice = math.floor(displaced_ms / width)
      local merged_slice, first, merged_width = string.match(family.merged, '^(%d+):(%d+):(%d+)$')
      if merged_width and tonumber(merged_width) ~= width then
        first = join_slices(tonumber(merged_width))
      elseif tonumber(merged_slice) ~= slice then
        first = family.floor
      end
      family.merged = string.format('%.0f:%d:%.0f', slice, first, width)
      change('m', family.merged)
      change('s' .. slice % (GRACE_SLICES + 1), string.format('%d:%d:%.0f', first, bought_by, displaced_ms))
    end
    family.floor = bought_by + 1
    change('f', family.floor)
  end
end

-- Only fields of generations from the floor on are deleted: the fields of older ones belong to newer generations now.
if is_pruned then
  local gone = {}
  for each = math.max(family.floor, generation - ACCESS_TOKENS_PER_FAMILY + 1), needed - 1 do
    gone[#gone + 1] = access_field_of(each)
  end
  if family.merged ~= '' and family.floor <= needed then
    for i = 0, GRACE_SLICES do gone[#gone + 1] = 's' .. i end
    change('m', '')
  end
  if #gone > 0 then redis.call('HDEL', family_key, unpack(gone)) end
  change('f', math.max(family.floor, needed))
  change('o', format_old(family, generation + 1, math.max(family.access_until_ms, spent_ms + grace_ms)))
end

redis.call('HSET', family_key, unpack(changed))
if family.replayed ~= '' then
  local live = list_replayed()
  -- Each generation from the floor on has at most one entry. This upper bound makes it rare to read all fields.
  if generation - family.floor + 1 + #live > ACCESS_TOKENS_PER_FAMILY then
    local field = read_whole_family(family_key).field
    while #live > 0 and are_too_many(live, field) do delete_oldest(live) end
  end
  redis.call('HSET', family_key, 'p', table.concat(live))
end
keep_family(family_key, family, family_digest, now_ms)
return {
  generation > family.head and 'recovered' or 'rotated', generation + 1, lives_ms, scope, family.username, 0, 0,
}
