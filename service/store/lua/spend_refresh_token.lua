-- Spends one generation of a family, or answers a replay of a spent one, or ends the family when that comes too late.
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

local text = redis.call('GET', family_key)
if not text then return { 'unknown' } end
local family = parse_family(text)
-- The client comes first: another one's replay must not be able to end this session.
if family.client_id ~= client_id then return { 'foreign' } end
local now_ms = read_clock(clock_offset_ms)
family.expires_ms = cap_lifetime(family.created_ms, family.expires_ms, max_age_ms)
if now_ms >= family.expires_ms or family.created_ms <= read_mark(family.subject) then return { 'unknown' } end
if family.secret_used == '1' and secret_used ~= '1' then return { 'without_secret' } end

-- The entry that says when a spent generation was spent; nil where that is longer ago than is remembered.
local function find_spent()
  if generation < family.floor then return nil end
  for _, entry in ipairs(family.spent) do
    if generation <= tonumber(entry.name) then return entry end
  end
end

local is_replay = generation < family.head
local spent = is_replay and find_spent()
if is_replay and (not spent or now_ms - spent.ms >= grace_ms) then
  local replay = string.format('%d\n%s', generation, spent and string.format('%.0f', spent.ms) or '')
  end_family(family, family_digest, 'replayed', now_ms, replay)
  return { 'replayed', family.username }
end
if not covers(allowed_scope, family.scope) then return { 'withdrawn' } end
local scope = family.scope
if wanted_scope ~= '' then
  if not covers(family.scope, wanted_scope) then return { 'beyond' } end
  local realm = string.match(family.scope, '^realm:%S+')
  scope = string.find(wanted_scope, '^realm:') and wanted_scope or realm .. ' ' .. wanted_scope
end

-- Notes that everything up to this generation is spent now; keeps times that the grace can still ask for, and of more
-- than SPENT_ENTRIES drops the one whose neighbours are closest: its generations then count from the later neighbour,
-- never from an earlier time. Measured between the neighbours, so that what was merged does not drift on and on.
-- Replays of merged generations count as those of the generation with the most: never as too few.
local function note_spent()
  local known = {}
  for _, entry in ipairs(family.spent) do
    if now_ms - entry.ms < grace_ms then known[#known + 1] = entry
    else family.floor = tonumber(entry.name) + 1 end
  end
  known[#known + 1] = { name = string.format('%d', generation), note = '', ms = now_ms }
  if #known > SPENT_ENTRIES then
    local closest = 2
    for i = 3, #known - 1 do
      if known[i + 1].ms - known[i - 1].ms < known[closest + 1].ms - known[closest - 1].ms then closest = i end
    end
    local merged, into = known[closest], known[closest + 1]
    if (tonumber(merged.note) or 0) > (tonumber(into.note) or 0) then into.note = merged.note end
    table.remove(known, closest)
  end
  family.spent = known
end

-- How many generations in a row were replayed; only a generation not yet counted changes it.
local function count_streak()
  local last, count = string.match(family.streak, '(%d+):(%d+)')
  last, count = tonumber(last or -1), tonumber(count or 0)
  if generation == last then return 0 end
  count = generation == last + 1 and count + 1 or 1
  family.streak = string.format('%d:%d', generation, count)
  return count
end

-- How often this generation was replayed by now; from REPLAYS_COUNTED on that number stands for all more.
local function count_replay()
  local count = math.min((tonumber(spent.note) or 0) + 1, REPLAYS_COUNTED)
  spent.note = string.format('%d', count)
  return count
end

local verdict, streak, replay = 'rotated', 0, nil
if is_replay then
  verdict, streak = 'repeated', count_streak()
  replay = { generation = string.format('%d', generation), count = count_replay() }
else
  if generation > family.head then verdict = 'recovered' end
  note_spent()
  family.head = generation + 1
  family.expires_ms = cap_lifetime(family.created_ms, now_ms + refresh_ttl_ms, max_age_ms)
end
local lives_ms = add_access_token(family, family_digest, access_digest, scope, now_ms, access_ttl_ms, replay)
if is_replay then
  redis.call('SET', family_key, format_family(family), 'KEEPTTL')
else
  write_family(family, family_digest, now_ms)
end
return { verdict, family.head, lives_ms, scope, family.username, streak, replay and replay.count or 0 }
