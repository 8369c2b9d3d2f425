-- Defines what the record of a family keeps of spent generations and their replays.

local GRACE_SLICES = 64

-- Opens the functions for spent generations, for replays, and for fields that are not needed any more.
local function open_spent_generations()
  local REPLAYS_COUNTED = 6
  local REPLAYED_GENERATIONS = 6
  local spent = {}

  -- Returns when this generation was spent, or nil if the record no longer has the time. From the floor on, the time is
  -- that of the same or the next higher generation that has an entry. Below the floor, it is the time of its slice.
  function spent.find_spent_ms(family, generation)
    local nearest, spent_ms
    for name, value in pairs(family.field) do
      if generation >= family.floor and string.find(name, '^a%d') then
        local given_ms, bought_by = parse_entry(family, value)
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

  -- Returns the latest time at which an access token was issued to a refresh.
  function spent.find_latest_ms(family)
    local latest_ms = 0
    for name, entry in pairs(family.field) do
      if string.find(name, '^a%d') then latest_ms = math.max(latest_ms, (parse_entry(family, entry))) end
    end
    return latest_ms
  end

  -- Counts the generation as replayed. Returns the streak, and how many generations in a row were replayed, or 0 if this
  -- generation was also the last one replayed, which changes nothing.
  function spent.count_streak(streak, generation)
    local last, count = string.match(streak, '(%d+):(%d+)')
    last, count = tonumber(last or -1), tonumber(count or 0)
    if generation == last then return streak, 0 end
    count = generation == last + 1 and count + 1 or 1
    return string.format('%d:%d', generation, count), count
  end

  -- Counts a replay of the generation. Returns the counts, and how often this generation was replayed; REPLAYS_COUNTED
  -- stands for that many or more. Counts are kept for the REPLAYED_GENERATIONS generations that were replayed last. A
  -- generation whose replays are no longer answered is dropped.
  function spent.count_replay(family, generation)
    local known, kept = 0, {}
    for name, count in string.gmatch(family.field.n or '', '(%d+):(%d+)') do
      if tonumber(name) == generation then
        known = tonumber(count)
      elseif tonumber(name) >= family.floor or family.merged ~= '' then
        kept[#kept + 1] = name .. ':' .. count
      end
    end
    local count = math.min(known + 1, REPLAYS_COUNTED)
    while #kept >= REPLAYED_GENERATIONS do table.remove(kept, 1) end
    kept[#kept + 1] = string.format('%d:%d', generation, count)
    return table.concat(kept, ' '), count
  end

  -- Returns the names of the fields p0, p1, … that the family has, the oldest first.
  function spent.name_replays(family)
    local names, first, last = {}, string.match(family.replays, '(%d+):(%d+)')
    for number = tonumber(first or 1), tonumber(last or 0) do names[#names + 1] = 'p' .. number end
    return names
  end

  -- Opens the access tokens that were issued to replays, from the names and the entries of their fields. The oldest are
  -- left out as long as they have expired. The caller deletes the fields that are `gone`.
  function spent.open_replays(family, names, entries, now_ms)
    local replays = { gone = {} }

    local function drop_oldest()
      replays.gone[#replays.gone + 1] = table.remove(names, 1)
      return table.remove(entries, 1)
    end

    while entries[1] and parse_entry(family, entries[1]) <= now_ms do drop_oldest() end

    function replays.count() return #names end

    function replays.delete_oldest() redis.call('DEL', access_key_of(drop_oldest())) end

    -- Returns the name of the entry's field.
    function replays.add(entry)
      local name = 'p' .. (names[1] and string.sub(names[#names], 2) + 1 or 0)
      names[#names + 1], entries[#entries + 1] = name, entry
      return name
    end

    -- Returns true if the family has too many access tokens: those of replays, and those of other refreshes in `field`.
    -- Redis is asked which of them still exist only if their number can matter.
    function replays.are_too_many(field)
      if #names > ACCESS_TOKENS_PER_FAMILY then return true end
      local keys = {}
      for _, entry in ipairs(entries) do keys[#keys + 1] = access_key_of(entry) end
      for name, entry in pairs(field) do
        if string.find(name, '^a%d') then keys[#keys + 1] = access_key_of(entry) end
      end
      return #keys > ACCESS_TOKENS_PER_FAMILY and redis.call('EXISTS', unpack(keys)) > ACCESS_TOKENS_PER_FAMILY
    end

    -- Returns the numbers of the first and the last field, or an empty text if there are none.
    function replays.format_range()
      return names[1] and string.sub(names[1], 2) .. ':' .. string.sub(names[#names], 2) or ''
    end

    return replays
  end

  -- Deletes the fields of all slices, because a changed grace gives slices another width. The caller writes one field for
  -- all of them, with the latest time. Returns the first generation of that field; generations that neither the old nor
  -- the new grace covers are left out.
  function spent.join_slices(family_key, family, spent_ms, covered_ms)
    local names, first = {}, family.floor
    for i = 0, GRACE_SLICES do names[i + 1] = 's' .. i end
    for _, value in ipairs(redis.call('HMGET', family_key, unpack(names))) do
      local lowest, ms = string.match(value or '', '^(%d+):%d+:(%d+)$')
      if lowest and spent_ms - ms < covered_ms then first = math.min(first, tonumber(lowest)) end
    end
    redis.call('HDEL', family_key, unpack(names))
    return first
  end

  -- Deletes the fields of generations below `needed`, and those of all slices if nothing below the floor is needed. The
  -- fields of generations below the floor belong to newer generations now.
  function spent.delete_stale(family_key, family, generation, needed)
    local gone = {}
    for each = math.max(family.floor, generation - ACCESS_TOKENS_PER_FAMILY + 1), needed - 1 do
      gone[#gone + 1] = access_field_of(each)
    end
    if family.merged ~= '' and family.floor <= needed then
      for i = 0, GRACE_SLICES do gone[#gone + 1] = 's' .. i end
      family.merged = ''
    end
    if #gone > 0 then redis.call('HDEL', family_key, unpack(gone)) end
  end

  return spent
end

-- Keeps the time of an entry that is about to be overwritten, while the grace covers it: the grace is cut into
-- GRACE_SLICES slices, and the times of one slice share a field. There is one more field than slices, so a field that a
-- later slice overwrites is older than the grace. Generations below `needed` are not kept. Changes the family, and adds
-- the field to `changed`, the names and values to write.
local function merge_spent_time(family_key, family, entry, needed, spent_ms, grace_ms, changed)
  local entry_ms, bought_by = parse_entry(family, entry)
  if bought_by < family.floor then return end
  if bought_by >= needed and spent_ms - entry_ms < grace_ms then
    local width = math.ceil(grace_ms / GRACE_SLICES)
    local slice = math.floor(entry_ms / width)
    local merged_slice, first, merged_width = string.match(family.merged, '^(%d+):(%d+):(%d+)$')
    merged_width = tonumber(merged_width or width)
    if merged_width ~= width then
      local covered_ms = math.max(grace_ms, merged_width * GRACE_SLICES)
      first = open_spent_generations().join_slices(family_key, family, spent_ms, covered_ms)
    elseif tonumber(merged_slice) ~= slice then
      first = family.floor
    end
    family.merged = string.format('%d:%d:%d', slice, first, width)
    changed[#changed + 1] = 's' .. slice % (GRACE_SLICES + 1)
    changed[#changed + 1] = string.format('%d:%d:%d', first, bought_by, entry_ms)
  end
  family.floor = bought_by + 1
end
