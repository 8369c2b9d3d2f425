-- Spends one generation of a family: issues an access token and moves the head to the next refresh token.
-- A replay of a spent generation also gets an access token within the grace; a later replay ends the family. A family
-- that is older than the maximum age ends too, so that a longer age later does not revive what was refused.
-- KEYS     family_key access_key
-- DERIVED  mark, index, revoked, access tokens of the family, its tombstone
-- ARGV     family_digest access_digest generation:number client_id secret_used wanted_scope allowed_scope
--          access_ttl_ms:number refresh_ttl_ms:number max_age_ms:number grace_ms:number
-- RETURNS  rotated | repeated | recovered, each with: head lives_ms scope username subject streak replays
--          replayed | foreign | without_secret, each with: (empty) scope username subject
--          withdrawn | unknown | beyond item
-- CLAUSES  RFC 6749 §6, §10.4, RFC 6819 §5.2.2.3, SPEC §3, §4.2
-- USES     records sessions/families sessions/spent_generations

local now_ms = read_clock()
local family, displaced, previous = read_family(family_key, access_field_of(generation), access_field_of(generation - 1))
if not family then return { 'unknown' } end
-- The client is checked first: a replay by another client must not end this family.
if family.client_id ~= client_id then return { 'foreign', '', family.scope, family.username, family.subject } end
-- The mark of a login at an identity provider is not read: the family ends together with what a refresh adds to it.
if now_ms >= family.expires_ms or family.created_ms <= read_mark(family.subject, '') then return { 'unknown' } end
if family.secret_used == '1' and secret_used ~= '1' then
  return { 'without_secret', '', family.scope, family.username, family.subject }
end
local capped_ms = cap_lifetime(family.created_ms, family.expires_ms, max_age_ms)
if now_ms >= capped_ms then
  family.field = read_fields(family_key)
  end_whole_family(family, family_digest, 'too_old', now_ms)
  return { 'unknown' }
end
family.expires_ms = capped_ms

local is_replay = generation < family.head
if is_replay then
  family.field = read_fields(family_key)
  local spent_ms = find_spent_ms(family, generation)
  if not spent_ms or now_ms - spent_ms >= grace_ms then
    local replay = string.format('%d\n', generation) .. (spent_ms and string.format('%d', spent_ms) or '')
    end_whole_family(family, family_digest, 'replayed', now_ms, replay)
    return { 'replayed', '', family.scope, family.username, family.subject }
  end
end
if find_excess(allowed_scope, family.scope) then return { 'withdrawn' } end
local scope = family.scope
if wanted_scope ~= '' then
  local item = find_excess(family.scope, wanted_scope)
  if item then return { 'beyond', item } end
  local realm = string.match(family.scope, '^realm:%S+')
  scope = string.find(wanted_scope, '^realm:') and wanted_scope or realm .. ' ' .. wanted_scope
end

if is_replay then
  local expires_ms = add_access_token(family, family_digest, access_digest, scope, now_ms, access_ttl_ms)
  -- A replay ends the access token of the replay a hundred before, never one of an honest refresh.
  local name = 'p' .. family.replays % ACCESS_TOKENS_PER_FAMILY
  if family.field[name] then redis.call('DEL', access_key_of(family.field[name])) end
  family.replays = family.replays + 1
  local counted, streak, times = count_replay(family.field.k, generation)
  redis.call('HSET', family_key, 'h', format_state(family), 'k', counted,
    name, format_entry(family, access_digest, now_ms, generation))
  return { 'repeated', family.head, expires_ms - now_ms, scope, family.username, family.subject, streak, times }
end

-- If the clock was set back, the time of the previous spend is used. A generation above the head means that Redis has lost
-- the writes up to it. The previous spend is then the last one that Redis still has.
local verdict = generation > family.head and 'recovered' or 'rotated'
if verdict == 'recovered' then previous = redis.call('HGET', family_key, access_field_of(family.head - 1)) end
local previous_ms, previous_generation = 0, -1
if previous then previous_ms, previous_generation = parse_entry(family, previous) end
local spent_ms = math.max(now_ms, previous_ms)
local is_idle = previous_generation == generation - 1
  and now_ms >= math.max(family.access_until_ms, previous_ms + grace_ms)
if is_idle then family.longest_s = 0 end
family.head = generation + 1
family.expires_ms = cap_lifetime(family.created_ms, now_ms + refresh_ttl_ms, max_age_ms)
local access_expires_ms = add_access_token(family, family_digest, access_digest, scope, now_ms, access_ttl_ms)
local must_keep = extend_lifetime(family, refresh_ttl_ms, max_age_ms)
-- The new entry overwrites that of an older generation, whose access token ends.
if displaced then
  redis.call('DEL', access_key_of(displaced))
  keep_time(family_key, family, displaced, spent_ms, grace_ms)
end

-- What neither the grace nor an access token needs is forgotten: at once after a long wait, else if half of the entries
-- would be too old, had all refreshes the distance of the last two.
local first = math.max(family.oldest, generation - ACCESS_TOKENS_PER_FAMILY)
local keep_ms = is_idle and 0 or math.max(grace_ms, 1000 * family.longest_s)
if is_idle and generation - first < 3 and family.replays == 0 then
  redis.call('HDEL', family_key, access_field_of(generation - 1), access_field_of(generation - 2))
  family.oldest = generation
elseif is_idle or generation - first > 2 and (now_ms - previous_ms) * (generation - first + 1) >= 2 * keep_ms then
  must_keep = forget(family_key, family, first, generation - 1, now_ms - keep_ms) or must_keep
  if is_idle then family.replays = 0 end
end
local entry = format_entry(family, access_digest, spent_ms, generation)
local changed = { 'h', format_state(family), access_field_of(generation), entry }
if must_keep then changed[5], changed[6] = 'v', format_fixed(family) end
redis.call('HSET', family_key, unpack(changed))
if must_keep then keep_family(family_key, family, family_digest, now_ms) end
return { verdict, family.head, access_expires_ms - now_ms, scope, family.username, family.subject, 0, 0 }
