"""The texts of the report before and after its tables."""

HEAD = """\
# Benchmarks

`./scripts/bench` measured this and wrote it. Compare the ratios: the times depend on the machine and its present load.
A goal is a wanted value. A bound is a limit that no change may exceed: `./scripts/bench --check` fails if a row exceeds
its bound. [Another page](neighbours.md) shows the latency of other callers during hostile requests.
"""

METHOD = """\
## Method

- One worker runs on the first core, wrk and Redis on the second. Redis writes its append-only file, without rewrites
  during a round. wrk keeps 64 connections open, unless a row names another number. The floors are minimal applications
  ([floors.py](../../benchmarks/floors.py)). They run under uvicorn with uvloop and httptools, like the service.
- Measurements that are compared take turns, round by round. A ratio is the median of the ratios of all rounds. A cost
  ratio compares the server's processor time for each request, which other programs on the machine do not change. A
  ratio of 1.0 is as cheap as the floor, and a higher one is cheaper. A rate ratio compares responses per second.
- A response with a wrong status ends the run, and so does a refresh with a wrong body. Before and after each round,
  other requests are sent and their whole responses are checked.
- Each round has new sessions. Without chains they are so many that each is refreshed once or twice. Each request
  presents the refresh token of an earlier response, and no token is presented twice. The client has a secret. `verify`
  and `introspect` use 100 tokens in turns. `revoke` ends a session with each request.
- "Chained refresh" has 64 sessions for its 64 connections. A new refresh token is presented by the next free
  connection, so each session always has one request. A round lasts 10 s. A session soon has the hundred access tokens
  that it may have, and then each refresh displaces the oldest. Only runs with `--peers` measure this row, and the goal
  shows the latest of them.
- "Server" and "Redis + load" are shares of their cores, and "load alone" is the part of wrk. If only the second core is
  saturated, Redis and the load limit the row, and its processor time says more than its rate. "Neither" is a row that
  waits, such as the one with a single connection, or a machine with other work.
- The ratio of Redis' time compares the processor time of Redis for each request. The floor's script reads one key, and
  redis-py sends each call alone, on one of many connections. The service sends the calls of concurrent requests in one
  write.
- wrk measures the latencies. They include the requests that wrk could not send during a slow response.
- In a storm of logins, 4 connections log in continuously, and 8 others refresh about 400 times per second. The server's
  time in that row includes the logins. "argon2id alone" checks the same password in a loop, on the same core.
- The service and the floors log only warnings. In the row "refresh, logged" the service has its default level: each
  refresh writes two lines to a file.
- The bytes of a session are the memory of Redis for all sessions, without connections, divided by their number. Each
  session belongs to another user. A session with ten live access tokens was refreshed nine times within their
  lifetime. For it a quarter of the sessions is measured, so that Redis has as many keys. What a rotation leaves is the
  sum over all keys after its access token and its grace period have expired. Both periods are short in this
  measurement.
- Each part of a bound's row is measured in several rounds, and the median counts. For processor time in the application
  the least value counts, since other work can only add to it. For the slowest invalidation of a cache the greatest
  value counts. The table shows the worst part. results.json has all rounds, and
  [bounds.py](../../benchmarks/bounds.py) names the fault that each bound catches.
- "In the application" is processor time without a server, in turns with that of an almost empty route.
- A step is the processor time of one callback of the event loop. No other request is served during a callback.
- The time of a parser is that for the largest text, divided by eight times that for an eighth of it. Square growth
  gives 8.
- Heartbeat commands are the calls that Redis counts while the connections of 200 workers send nothing else. They belong
  to the Redis client of the service in four processes, without its web server. What Redis uses without them is
  subtracted from its share of a core.
- In an outage Redis is killed, frozen, or cut off by a network that passes no data. "Back" counts from when Redis
  answers again. In a failover it counts from the promotion of the replica. Behind Sentinels it counts from when all of
  them name the new master.
"""

REPRODUCTION = """\
## Run the benchmark

```sh
./scripts/bench               # all but the peers, in 20 minutes, on two otherwise idle cores
./scripts/bench --check       # the same, and status 1 if a row exceeds its bound
./scripts/bench --peers       # with the peers, which it installs first
./scripts/bench --quick       # about a minute, written to build/benchmarks
./scripts/bench --only steps  # one group of bounds; --help lists them
```

It installs what it needs, and writes this page, its charts and [results.json](results.json), which has every round.
The rows of the peers and their date stay until the next run with `--peers`.
"""
