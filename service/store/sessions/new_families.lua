-- Defines how a family begins, and how it takes the place of another one of a user who has too many.

-- Writes a new family with its first access token. Returns the lifetime of the token in ms.
local function start_family(family, family_digest, access_digest, now_ms, access_ttl_ms, refresh_ttl_ms, max_age_ms)
  family.fixed_lines = string.format('2\n%d\n', family.created_ms) .. table.concat({
    family.grant_type, family.secret_used, family.user_digest, family.subject, family.client_id, family.username,
    family.scope, family.browser_name, family.sid,
  }, '\n') .. '\n'
  family.expires_ms = cap_lifetime(family.created_ms, now_ms + refresh_ttl_ms, max_age_ms)
  family.access_until_ms, family.indexed_until_ms, family.head, family.oldest = 0, 0, 1, 0
  family.replayed, family.spent_times, family.newer_lines = '', '', ''
  family.tokens, family.replay_tokens = { count = 0, text = '' }, { count = 0, text = '' }
  local lives_ms =
    add_access_token(family, family.tokens, family_digest, access_digest, family.scope, now_ms, access_ttl_ms, 0)
  write_family(family, family_digest, now_ms, refresh_ttl_ms)
  return lives_ms
end

local function displace(digest, now_ms)
  local other = read_family(key_of('family', digest))
  if other then end_family(other, digest, 'session_displaced', now_ms) end
  return other
end

local MOST_DISPLACED = 10

-- Ends other families of the user, those first whose entries in the index expire first, until at most `most` are left
-- with the new one. These are about the families that would expire first. One call ends at most MOST_DISPLACED, so
-- after the limit was lowered it takes several. The index also has members of other kinds, and it is read only if it
-- has more members than `most`. A family that is over counts until its look-ahead ends. One whose record cannot be read
-- is passed over: it must not keep its user from logging in. Returns digest, client_id, username, subject and scope of each
-- that it ended.
local function displace_families(family, family_digest, most, now_ms)
  local index_key, displaced = key_of('index', family.user_digest), {}
  if redis.call('ZCARD', index_key) <= most then return displaced end
  local members, excess = redis.call('ZRANGE', index_key, '0', '-1'), -most
  for _, member in ipairs(members) do
    if string.find(member, 'family:', 1, true) == 1 then excess = excess + 1 end
  end
  excess = math.min(excess, MOST_DISPLACED)
  for _, member in ipairs(members) do
    if excess <= 0 then break end
    local digest = string.match(member, '^family:(.+)$')
    if digest and digest ~= family_digest then
      local is_read, other = pcall(displace, digest, now_ms)
      if is_read and other then
        for _, value in ipairs({ digest, other.client_id, other.username, other.subject, other.scope }) do
          displaced[#displaced + 1] = value
        end
      elseif is_read then
        forget_member(family.user_digest, member)
      end
      excess = is_read and excess - 1 or excess
    end
  end
  return displaced
end
