-- What all scripts of the load share: how a form is posted, how tokens are read, and what is told at the end.
--
-- `wrong` counts answers with a body that is not the right one; wrk itself counts errors and statuses from 400 on.
wrong = 0

local threads = {}

function setup(thread) threads[#threads + 1] = thread end

function read_lines(path)
  local lines = {}
  for line in io.lines(path) do lines[#lines + 1] = line end
  return lines
end

-- A request is written out by hand: this is done for each, and must cost the load little.
function post(body)
  return string.format(
    'POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s',
    wrk.path, wrk.headers['Host'], #body, body)
end

-- One line of JSON, the last that wrk prints. Times are microseconds.
function done(summary, latency)
  local errors = summary.errors
  for _, thread in ipairs(threads) do wrong = wrong + thread:get('wrong') end
  io.write(string.format(
    '{"requests":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,"unanswered":%d,"refused":%d,"wrong":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.timeout, errors.status, wrong))
end
