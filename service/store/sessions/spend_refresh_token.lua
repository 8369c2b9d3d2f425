-- Spends one generation of a family: issues an access token and moves the head to the next refresh token. A replay of a
-- spent generation within the grace gets an access token and the current refresh token. A later replay ends the family.
-- A family that is older than the maximum age ends too, so that a longer age later does not revive what was refused.
-- KEYS     family_key access_key
-- DERIVED  mark, index, revoked, access tokens of the family, its tombstone
-- ARGV     family_digest access_digest generation:number client_id secret_used wanted_scope allowed_scope
--          access_ttl_ms:number refresh_ttl_ms:number max_age_ms:number grace_ms:number
-- RETURNS  rotated | repeated | recovered, each with: head lives_ms scope username subject streak replays
--          replayed | foreign | without_secret, each with: (empty) scope username subject
--          withdrawn | unknown | beyond item
-- CLAUSES  RFC 6749 §6, §10.4, RFC 6819 §5.2.2.3, SPEC §3, §4.2
-- USES     records sessions/families

local now_ms = read_clock()
local family = read_family(family_key)
if not family then return { 'unknown' } end
-- The client is checked first: a replay by another client must not end this family.
if family.client_id ~= client_id then return { 'foreign', '', family.scope, family.username, family.subject } end
-- The mark of a login at an identity provider is not read: its revokeAll soon ends the family, with any token that a
-- refresh adds meanwhile.
if now_ms >= family.expires_ms or family.created_ms <= read_mark(family.user_digest, '') then return { 'unknown' } end
if family.secret_used == '1' and secret_used ~= '1' then
  return { 'without_secret', '', family.scope, family.username, family.subject }
end
family.expires_ms = cap_lifetime(family.created_ms, family.expires_ms, max_age_ms)
if now_ms >= family.expires_ms then
  end_family(family, family_digest, 'too_old', now_ms)
  return { 'unknown' }
end

local is_replay = generation < family.head
local spent_ms = is_replay and find_spent_ms(family, generation)
if is_replay and (not spent_ms or now_ms - spent_ms >= grace_ms) then
  local replay = string.format('%d\n', generation) .. (spent_ms and string.format('%d', spent_ms) or '')
  end_family(family, family_digest, 'replayed', now_ms, replay)
  return { 'replayed', '', family.scope, family.username, family.subject }
end
if find_excess(allowed_scope, family.scope) then return { 'withdrawn' } end
local scope = family.scope
if wanted_scope ~= '' then
  local item = find_excess(family.scope, wanted_scope)
  if item then return { 'beyond', item } end
  local realm = string.match(family.scope, '^realm:%S+')
  scope = string.find(wanted_scope, '^realm:') and wanted_scope or realm .. ' ' .. wanted_scope
end

local verdict, list, streak, replays = 'rotated', family.tokens, 0, 0
if is_replay then
  verdict, list = 'repeated', family.replay_tokens
  streak, replays = count_replay(family, generation)
else
  -- A generation above the head means that Redis has lost the writes up to it.
  if generation > family.head then verdict = 'recovered' end
  family.head = generation + 1
  family.expires_ms = cap_lifetime(family.created_ms, now_ms + refresh_ttl_ms, max_age_ms)
end
-- The first write must be one that a full Redis refuses: after any other write it would accept the rest.
local lives_ms = add_access_token(family, list, family_digest, access_digest, scope, now_ms, access_ttl_ms, generation)
forget_tokens(family, family.tokens, now_ms, grace_ms)
forget_tokens(family, family.replay_tokens, now_ms, grace_ms)
write_family(family, family_digest, now_ms, refresh_ttl_ms)
return { verdict, family.head, lives_ms, scope, family.username, family.subject, streak, replays }
