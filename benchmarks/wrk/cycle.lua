-- Sends requests for the tokens of a file in turns, with GET and a header or as the POST of a form.
-- Without a file it always sends the same GET.
-- ARGUMENTS  [file of tokens, prefix of the token: `Authorization: Bearer ` or the form]
require('common')

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
