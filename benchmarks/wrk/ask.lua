-- Asks for tokens in turns, again and again, with a GET or the post of a form; without tokens it is always the same GET.
-- ARGUMENTS  [file of tokens, `Authorization: Bearer ` or the form without the token]
require('told')

local requests = {}
local turn = 0

function init(arguments)
  if #arguments == 0 then return end
  local name, value = arguments[2]:match('^([%a-]+): (.+)$')
  for i, token in ipairs(read_lines(arguments[1])) do
    requests[i] = name and wrk.format('GET', nil, { [name] = value .. token }) or post(arguments[2] .. token)
  end
  function request()
    turn = turn % #requests + 1
    return requests[turn]
  end
end
