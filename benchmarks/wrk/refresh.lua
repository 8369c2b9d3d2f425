-- Refreshes sessions in turns. A request takes the first token of a queue, and the new token goes to its end.
-- No token is presented twice, since all connections share the queue. With as many sessions as connections, each new
-- token is presented by the next free connection, so each session is a chain of requests. wrk calls `request` once
-- before the round and does not send the result, so the first token is not used.
-- ARGUMENTS  file of refresh tokens, form without the token, [mean pause of a connection in milliseconds]
require('common')

local tokens, first, last, form

function init(arguments)
  tokens, form = read_lines(arguments[1]), arguments[2]
  first, last = 1, #tokens
  local pause_ms = tonumber(arguments[3])
  if pause_ms then
    -- The pause is random, so that the connections do not send their requests at the same time.
    function delay() return math.random(pause_ms / 2, pause_ms * 3 / 2) end
  end
end

function request()
  local token = tokens[first]
  assert(token, 'there are more connections than tokens')
  tokens[first], first = nil, first + 1
  return post(form .. token)
end

function response(status, _, body)
  local token = body:match('"refresh_token": ?"([^"]+)"')
  if status ~= 200 or not token then
    wrong = wrong + 1
  else
    last = last + 1
    tokens[last] = token
  end
end
