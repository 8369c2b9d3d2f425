-- Defines how a family is read that version 0.2.0 of the service wrote last. Its fields were v (the version), h (head), t
-- (times), s, c, u, r (subject, client_id, username, scope), g (grant), f (floor), m (merged), o (stale), p, k and n, and
-- its entries had fixed widths and times since 1970.

-- Opens the functions for these families.
local function open_old_families()
  local old_families = {}

  -- Returns the fields as this version writes them.
  function old_families.convert(field)
    local created_ms, expires_in_ms, access_in_ms = string.match(field.t or '', '^(%d+) (%-?%d+) (%-?%d+)$')
    local grant_type, secret_used, provider = string.match(field.g or '', '^(%l)\n(%d)\n([^\n]*\n[^\n]*\n[^\n]*)$')
    local stale_below, stale_in_ms = string.match(field.o or '', '^(%d+):(%-?%d+)$')
    if not (created_ms and grant_type and stale_below) then error('a session has a broken record') end
    local function convert_entry(entry)
      return string.sub(entry, 1, 22)
        .. string.format('%d:%d', string.sub(entry, 23, 35) - created_ms, tonumber(string.sub(entry, 36), 16))
    end

    local has_provider = provider ~= '\n\n'
    local converted = {
      v = string.format('2 %s %d %s %s %d %s', created_ms, math.max(expires_in_ms, access_in_ms), grant_type, secret_used,
        has_provider and 1 or 0, field.s),
      h = string.format('%s %s %s %s %s %d', field.h, expires_in_ms, access_in_ms, field.f, stale_below,
        stale_in_ms - access_in_ms)
        .. (field.m ~= '' and ' ' .. field.m or '') .. (field.p ~= '' and ' p0:' .. #field.p / 43 - 1 or ''),
      c = field.c, u = field.u, r = shorten_scope(field.r), k = field.k, n = field.n, g = has_provider and provider or nil,
    }
    for at = 1, #field.p, 43 do
      converted['p' .. (at - 1) / 43] = convert_entry(string.sub(field.p, at, at + 42))
    end
    for name, value in pairs(field) do
      if string.find(name, '^a%d') then converted[name] = convert_entry(value) end
      if string.find(name, '^s%d') then converted[name] = value end
    end
    return converted
  end

  -- Writes the family as this version does. A full Redis refuses it, because the deletion does not come first.
  function old_families.rewrite(family_key)
    local changed, gone = {}, { 't', 's', 'f', 'm', 'o', 'p' }
    local converted = old_families.convert(read_fields(family_key))
    for name, value in pairs(converted) do changed[#changed + 1], changed[#changed + 2] = name, value end
    if not converted.g then gone[#gone + 1] = 'g' end
    redis.call('HSET', family_key, unpack(changed))
    redis.call('HDEL', family_key, unpack(gone))
  end

  return old_families
end
