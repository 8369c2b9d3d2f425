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

-- All fields are read for a replay, and for a generation above the head, because Redis has lost the writes up to it.
local is_replay = generation < family.head
local whole = generation ~= family.head and open_families().read_whole(family_key)
if is_replay then
  local spent_ms = open_spent_generations().find_spent_ms(whole, generation)
  if not spent_ms or now_ms - spent_ms >= grace_ms then
    local replay = string.format('%d\n', generation) .. (spent_ms and string.format('%d', spent_ms) or '')
    open_families().end_whole(whole, family_digest, 'replayed', now_ms, replay)
    return { 'replayed', family.username }
  end
end
if not covers(allowed_scope, family.scope) then return { 'withdrawn' } end
local scope = family.scope
if wanted_scope ~= '' then
  if not covers(family.scope, wanted_scope) then return { 'beyond' } end
  local realm = string.match(family.scope, '^realm:%S+')
  scope = string.find(wanted_scope, '^realm:') and wanted_scope or realm .. ' ' .. wanted_scope
end

if is_replay then
  local spent = open_spent_generations()
  local expires_ms = add_access_token(family, family_digest, access_digest, scope, now_ms, access_ttl_ms)
  local names, entries = spent.name_replays(family), {}
  for i, name in ipairs(names) do entries[i] = whole.field[name] end
  local replays = spent.open_replays(family, names, entries, now_ms)
  local entry = format_entry(family, access_digest, expires_ms, generation)
  local name = replays.add(entry)
  -- A replay displaces only tokens of earlier replays, so one token of a replay may exceed ACCESS_TOKENS_PER_FAMILY.
  while replays.count() > 1 and replays.are_too_many(whole.field) do replays.delete_oldest() end
  family.expires_ms, family.replays = uncapped_ms, replays.format_range()
  local streak, streak_length = spent.count_streak(whole.field.k or '', generation)
  local counts, times = spent.count_replay(whole, generation)
  if #replays.gone > 0 then redis.call('HDEL', family_key, unpack(replays.gone)) end
  redis.call('HSET', family_key, 'h', format_state(family), name, entry, 'k', streak, 'n', counts)
  return { 'repeated', family.head, expires_ms - now_ms, scope, family.username, streak_length, times }
end

-- If the clock was set back, the time of the previous spend is used. If Redis has lost that entry, the latest is used.
local previous_ms, previous_generation = 0, -1
if previous then previous_ms, previous_generation = parse_entry(family, previous) end
if whole then previous_ms = math.max(previous_ms, open_spent_generations().find_latest_ms(whole)) end
local spent_ms = math.max(now_ms, previous_ms)
local is_idle = previous_generation == generation - 1
  and now_ms >= math.max(family.access_until_ms, previous_ms + grace_ms)
local verdict = generation > family.head and 'recovered' or 'rotated'
family.head = generation + 1
family.expires_ms = cap_lifetime(family.created_ms, now_ms + refresh_ttl_ms, max_age_ms)
local access_expires_ms = add_access_token(family, family_digest, access_digest, scope, now_ms, access_ttl_ms)
local must_keep = extend_lifetime(family, refresh_ttl_ms, max_age_ms)
local changed = { access_field_of(generation), format_entry(family, access_digest, spent_ms, generation) }
if must_keep then changed[3], changed[4] = 'v', format_fixed(family) end

-- The fields of generations below `needed` are not needed any more.
local needed = 0
if is_idle then
  needed = generation
elseif now_ms >= family.stale_from_ms then
  needed = family.stale_below
end

-- The new entry overwrites the field of an older entry, whose access token ends.
if displaced then
  redis.call('DEL', access_key_of(displaced))
  merge_spent_time(family_key, family, displaced, needed, spent_ms, grace_ms, changed)
end
if needed > 0 then
  open_spent_generations().delete_stale(family_key, family, generation, needed)
  family.floor = math.max(family.floor, needed)
  family.stale_below = generation + 1
  family.stale_from_ms = math.max(family.access_until_ms, spent_ms + grace_ms)
end
if family.replays ~= '' then
  local spent = open_spent_generations()
  local names = spent.name_replays(family)
  local replays = spent.open_replays(family, names, redis.call('HMGET', family_key, unpack(names)), now_ms)
  -- Each generation from the floor on has at most one entry. This upper bound makes it rare to read all fields.
  if generation - family.floor + 1 + replays.count() > ACCESS_TOKENS_PER_FAMILY then
    local field = open_families().read_whole(family_key).field
    field[changed[1]] = changed[2]
    while replays.count() > 0 and replays.are_too_many(field) do replays.delete_oldest() end
  end
  if #replays.gone > 0 then redis.call('HDEL', family_key, unpack(replays.gone)) end
  family.replays = replays.format_range()
end
redis.call('HSET', family_key, 'h', format_state(family), unpack(changed))
if must_keep then keep_family(family_key, family, family_digest, now_ms) end
return { verdict, family.head, access_expires_ms - now_ms, scope, family.username, 0, 0 }
