-- Posts a form once for each token of a file, and stops after the last token.
-- ARGUMENTS  file of tokens, form without the token
require('common')

local tokens, form, began_us
local next_one = 0

function init(arguments)
  tokens, form = read_lines(arguments[1]), arguments[2]
end

function request()
  began_us = began_us or read_clock_us()
  if next_one == #tokens then
    -- Other connections may send one more request in this turn of the event loop. It repeats the last token.
    took_us = read_clock_us() - began_us
    wrk.thread:stop()
  else
    next_one = next_one + 1
  end
  return post(form .. tokens[next_one])
end
