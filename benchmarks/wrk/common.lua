-- Functions of all wrk scripts: the POST of a form, the reading of tokens, and the summary of a round.
--
-- `wrong` counts responses with a wrong body. wrk itself counts errors and statuses from 400 on.
-- `took_us` is the duration of a round that stopped early, which wrk does not measure. It is 0 for other rounds.
local ffi = require('ffi')
ffi.cdef('typedef struct { long s; long us; } timeval; int gettimeofday(timeval *, void *);')

wrong, took_us = 0, 0

local threads = {}

function setup(thread) threads[#threads + 1] = thread end

function read_lines(path)
  local lines = {}
  for line in io.lines(path) do lines[#lines + 1] = line end
  return lines
end

function read_clock_us()
  local now = ffi.new('timeval')
  ffi.C.gettimeofday(now, nil)
  return tonumber(now.s) * 1000000 + tonumber(now.us)
end

local head

-- The request is formatted here because wrk.format takes more processor time, and this runs for each request.
function post(body)
  if not head then
    head = string.format('POST %s HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n', wrk.path)
    for name, value in pairs(wrk.headers) do head = head .. name .. ': ' .. value .. '\r\n' end
  end
  return head .. 'Content-Length: ' .. #body .. '\r\n\r\n' .. body
end

-- Prints the summary, one line of JSON, as the last line of wrk's output. Times are microseconds.
function done(summary, latency)
  local errors = summary.errors
  for _, thread in ipairs(threads) do
    wrong, took_us = wrong + thread:get('wrong'), math.max(took_us, thread:get('took_us'))
  end
  io.write(string.format(
    '{"requests":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,"unanswered":%d,"refused":%d,"wrong":%d}\n',
    summary.requests, took_us > 0 and took_us or summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.timeout, errors.status, wrong))
end
