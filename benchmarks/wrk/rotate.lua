-- Refreshes sessions in turns: each request takes the first token of the queue, and that of its answer goes to the end.
--
-- So none is ever presented twice, whichever connection it came by.
-- ARGUMENTS  file of refresh tokens, form without the token, [mean milliseconds for which a connection pauses]
require('told')

local tokens, first, last, form

function init(arguments)
  tokens, form = read_lines(arguments[1]), arguments[2]
  first, last = 1, #tokens
  local pause_ms = tonumber(arguments[3])
  if pause_ms then
    -- By chance, or all connections would ask in one moment.
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
