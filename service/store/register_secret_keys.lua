-- Records the ids of an instance's secret keys, if one of them is in use here already, or no key is. An instance that
-- was foreign takes no empty store, which the instances with the right key are about to take again.
-- KEYS     secret_keys_key
-- ARGV     key_ids:json, state (start, in_use, or foreign: as this instance was answered before)
-- RETURNS  in_use | foreign
-- CLAUSES  none

local known = redis.call('SMEMBERS', secret_keys_key)
local is_in_use = #known == 0 and state ~= 'foreign'
for _, known_id in ipairs(known) do
  for _, key_id in ipairs(key_ids) do
    is_in_use = is_in_use or key_id == known_id
  end
end
if not is_in_use then
  return { 'foreign' }
end
if state ~= 'in_use' or #known == 0 then
  redis.call('SADD', secret_keys_key, unpack(key_ids))
end
return { 'in_use' }
