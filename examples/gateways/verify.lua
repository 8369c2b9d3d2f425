-- The action `lua.verify` of HAProxy: asks the token service about the caller's access token.
-- After a 200 the request has the identity headers of the answer, and the variable txn.verified. What else the service
-- has to say goes to the caller. In every other case, an error in this file included, nothing happens here: haproxy.cfg
-- lets no request pass that lacks the variable.

-- Of haproxy.cfg, which has less patience than this.
local ADDRESS = "http://127.0.0.1:8001/oauth2/v1/verify"
local TIMEOUT_MS = 5000
local IDENTITY = {
  "x-auth-subject", "x-auth-realm", "x-auth-user", "x-auth-client", "x-auth-scope", "x-auth-expires-in",
}
local HANDED_ON = { "www-authenticate", "content-type", "cache-control", "retry-after" }
local REFUSALS = { [401] = true, [403] = true, [503] = true }

local function encode(text)
  return (text:gsub("[^%w]", function(character) return string.format("%%%02X", character:byte()) end))
end

-- HAProxy counts the values of a header from 0, and what it is given from 1.
local function values_of(headers, name)
  local values = {}
  if headers ~= nil and headers[name] ~= nil then
    for index = 0, #headers[name] do
      values[#values + 1] = headers[name][index]
    end
  end
  return values
end

local function ask(txn, scope)
  local address = ADDRESS
  if scope ~= "-" then
    address = address .. "?scope=" .. encode(scope)
  end
  -- Nothing else of the request: no other header, no body.
  local headers = {}
  local authorization = values_of(txn.http:req_get_headers(), "authorization")
  if #authorization > 0 then
    headers["authorization"] = authorization
  end
  -- Each request needs a client of its own.
  return core.httpclient():get({ url = address, headers = headers, timeout = TIMEOUT_MS })
end

local function tell_who_calls(txn, answer)
  for _, name in ipairs(IDENTITY) do
    local values = values_of(answer.headers, name)
    if #values == 1 then
      txn.http:req_set_header(name, values[1])
    end
  end
end

local function refuse(txn, answer)
  -- HAProxy's own 503, where the service is away, does not say when to come back.
  local headers = { ["retry-after"] = answer.status == 503 and { "1" } or nil }
  for _, name in ipairs(HANDED_ON) do
    local values = values_of(answer.headers, name)
    if #values > 0 then
      headers[name] = values
    end
  end
  txn:done(txn:reply({ status = answer.status, headers = headers, body = answer.body or "" }))
end

core.register_action("verify", { "http-req" }, function(txn, scope)
  local answer = ask(txn, scope)
  if answer.status == 200 then
    tell_who_calls(txn, answer)
    txn:set_var("txn.verified", true)
  elseif REFUSALS[answer.status] then
    refuse(txn, answer)
  end
end, 1)
