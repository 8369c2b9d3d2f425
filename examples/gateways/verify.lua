-- The action `lua.verify` of HAProxy, which verifies the caller's access token at the token service.
--
-- If the service returns 200, the request gets the identity headers of the response and the variable txn.verified. A
-- 401, 403 or 503 is returned to the caller. In every other case, such as an error in this file, nothing is changed:
-- haproxy.cfg refuses every request without the variable.

-- The address of the listener `verify` in haproxy.cfg, whose server timeout of 3 s is shorter than TIMEOUT_MS.
local ADDRESS = "http://127.0.0.1:8001/oauth2/v1/verify"
local TIMEOUT_MS = 5000
local IDENTITY = {
  "x-auth-subject", "x-auth-realm", "x-auth-user", "x-auth-client", "x-auth-scope", "x-auth-expires-in",
}
local SENT = { "authorization", "traceparent" }
local FORWARDED_HEADERS = { "www-authenticate", "content-type", "cache-control", "retry-after" }
local REFUSALS = { [401] = true, [403] = true, [503] = true }

local function encode(text)
  return (text:gsub("[^%w]", function(character) return string.format("%%%02X", character:byte()) end))
end

-- HAProxy returns the values of a header in a table that begins at 0, and expects tables that begin at 1.
local function values_of(headers, name)
  local values = {}
  if headers ~= nil and headers[name] ~= nil then
    for index = 0, #headers[name] do
      values[#values + 1] = headers[name][index]
    end
  end
  return values
end

local function request_verification(txn, scope)
  local address = ADDRESS
  if scope ~= "-" then
    address = address .. "?scope=" .. encode(scope)
  end
  -- Only the token and the trace are sent to the service; other headers and the body are not.
  local headers = {}
  local received = txn.http:req_get_headers()
  for _, name in ipairs(SENT) do
    local values = values_of(received, name)
    if #values > 0 then
      headers[name] = values
    end
  end
  -- Each request needs a client of its own.
  return core.httpclient():get({ url = address, headers = headers, timeout = TIMEOUT_MS })
end

local function set_identity_headers(txn, response)
  for _, name in ipairs(IDENTITY) do
    local values = values_of(response.headers, name)
    if #values == 1 then
      txn.http:req_set_header(name, values[1])
    end
  end
end

local function refuse(txn, response)
  -- HAProxy's own 503, sent if the service is unreachable, has no Retry-After.
  local headers = { ["retry-after"] = response.status == 503 and { "1" } or nil }
  for _, name in ipairs(FORWARDED_HEADERS) do
    local values = values_of(response.headers, name)
    if #values > 0 then
      headers[name] = values
    end
  end
  txn:done(txn:reply({ status = response.status, headers = headers, body = response.body or "" }))
end

core.register_action("verify", { "http-req" }, function(txn, scope)
  local response = request_verification(txn, scope)
  if response.status == 200 then
    set_identity_headers(txn, response)
    txn:set_var("txn.verified", true)
  elseif REFUSALS[response.status] then
    refuse(txn, response)
  end
end, 1)
