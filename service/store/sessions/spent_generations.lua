-- Defines what the record of a family keeps of spent generations and their replays, and how it is forgotten.

local REPLAYS_COUNTED = 6
local GRACE_SLICES = 64
local MANY_FIELDS = 20

-- Returns when this generation was spent, or nil if the record no longer has the time.
local function find_spent_ms(family, generation)
  if generation < family.oldest then return nil end
  local times = { family.field.o }
  for name, entry in pairs(family.field) do
    if string.find(name, '^a%d') then times[#times + 1] = string.sub(entry, DIGEST_WIDTH + 1) end
  end
  local nearest, spent_ms = math.huge, nil
  for ms, each in string.gmatch(table.concat(times, ' '), '(%-?%d+):(%d+)') do
    if each + 0 >= generation and each + 0 < nearest then nearest, spent_ms = each + 0, family.created_ms + ms end
  end
  return spent_ms
end

-- Counts a replay of the generation. Returns the field k, how many generations in a row were replayed, or 0 if this
-- generation was also the last one replayed, and how often it was replayed in a row.
local function count_replay(known, generation)
  local last, streak, times = string.match(known or '-1:0:0', '^(%-?%d+):(%d+):(%d+)$')
  if generation == last + 0 then
    times = math.min(times + 1, REPLAYS_COUNTED)
    return string.format('%d:%d:%d', generation, streak, times), 0, times
  end
  streak = generation == last + 1 and streak + 1 or 1
  return string.format('%d:%d:1', generation, streak), streak, 1
end

-- Keeps the time of an entry that leaves its field, as long as the grace covers it. The generations of pairs that the
-- grace has left are older than the oldest from now on.
local function keep_time(family_key, family, entry, now_ms, grace_ms)
  local entry_ms, generation = parse_entry(family, entry)
  if now_ms - entry_ms >= grace_ms then
    family.oldest = math.max(family.oldest, generation + 1)
    return
  end
  local times = string.sub(entry, DIGEST_WIDTH + 1) .. ' ' .. (redis.call('HGET', family_key, 'o') or '')
  local kept, slice, width = {}, nil, math.ceil(grace_ms / GRACE_SLICES)
  for ms, each in string.gmatch(times, '(%-?%d+):(%d+)') do
    if now_ms - family.created_ms - ms >= grace_ms then
      family.oldest = math.max(family.oldest, each + 1)
    elseif math.floor(ms / width) ~= slice then
      kept[#kept + 1], slice = ms .. ':' .. each, math.floor(ms / width)
    end
  end
  redis.call('HSET', family_key, 'o', table.concat(kept, ' '))
end

-- Deletes the fields of the generations first to last, and of replays, that are from `until_ms` or before. Writes the key
-- anew if there are many, because Redis never returns a large hash to its compact encoding. Returns true if the caller
-- must call keep_family.
local function forget(family_key, family, first, last, until_ms)
  local names, gone = {}, {}
  for each = first, last do names[#names + 1] = access_field_of(each) end
  for each = 0, math.min(family.replays, ACCESS_TOKENS_PER_FAMILY) - 1 do names[#names + 1] = 'p' .. each end
  for i, entry in ipairs(redis.call('HMGET', family_key, unpack(names))) do
    local ms, generation = math.huge, nil
    if entry then ms, generation = parse_entry(family, entry) end
    if ms <= until_ms then
      gone[#gone + 1], family.oldest = names[i], math.max(family.oldest, generation + 1)
    end
  end
  -- The generations in this field are older than the first.
  if family.oldest > first then gone[#gone + 1] = 'o' end
  if #gone > 0 then redis.call('HDEL', family_key, unpack(gone)) end
  if #gone < MANY_FIELDS then return false end
  local left = redis.call('HGETALL', family_key)
  redis.call('DEL', family_key)
  redis.call('HSET', family_key, unpack(left))
  return true
end
