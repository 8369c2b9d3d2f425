"""The texts of the report before and after its tables."""

HEAD = """\
# What it costs

`./scripts/bench` measured this and wrote it. Ratios count: times are those of one machine, and of a minute of it.
A goal is a wish. A bound is a limit that no change may exceed: `./scripts/bench --check` fails if a row is short of it.
[Another page](neighbours.md) shows the latency of other callers during hostile requests.
"""

METHOD = """\
## How it is measured

- One worker on the first core; wrk and Redis on the second. Redis writes its append-only file, without rewrites
  during a round. 64 connections are kept alive, unless a row says otherwise. The floors are applications of this
  repository ([floors.py](../../benchmarks/floors.py)), under uvicorn with uvloop and httptools, as the service is.
- What is compared takes turns, round by round, and a ratio is the median of the ratios of all rounds. A cost ratio
  compares the server's processor time for each request, which other programs on the machine do not change. A ratio of
  1.0 is as cheap as the floor, and more is cheaper. A rate ratio compares answers a second.
- An answer counts as wrong unless its status is right, and of a refresh also its body. One of those ends the run.
  Before and after each round requests outside the measurement are checked whole.
- Each round has its own sessions, so many that each is refreshed once or twice. Each request presents the refresh
  token of an earlier answer, and no token is presented twice. The client has a secret. `verify` and
  `introspect` ask for 100 tokens in turns, `revoke` ends a session with each request.
- "Server" and "Redis + load" are shares of their cores. Where the second is full and the first is not, the load
  bounds the row, and its rate says less than its processor time. "Neither" is a row that waits, as one connection
  does, or a machine with other work.
- Latencies are those of wrk. They include the requests that wrk could not send while an answer stalled.
- In a storm of logins 4 connections log in as fast as they can, and 8 others refresh about 400 times a second. The
  server's time of that row includes the logins. "argon2id alone" checks the same password in a loop, on the
  same core.
- The log shows warnings only, on both sides; the row "refresh, logged" has it at its default level, where each refresh
  writes two lines, to a file.
- Bytes of a session are what Redis took for all of them, without its connections, divided by their number; each is
  another user's. What a rotation leaves is weighed key by key, once its access token and its grace are over, which
  are short for that.
- Each part of a bound's row is measured in several rounds, and the median counts. Of processor time below HTTP the
  least counts, since other work can only add to it. Of the time for which memory is trusted the greatest counts. The
  table shows the worst part. results.json has all rounds, and [bounds.py](../../benchmarks/bounds.py) names the fault
  that each bound catches.
- "In the application" is processor time below HTTP, without a server, in turns with that of an almost empty route.
- A step is the processor time of one callback of the event loop, during which no other caller is served.
- The time of a parser is that for the largest text, divided by eight times that for an eighth of it. Square growth is
  8.
- An outage is a Redis that is killed, frozen, or cut off by a network through which nothing passes. "Back" counts from
  when Redis answers again. In a failover it counts from the promotion of the replica. Behind Sentinels it counts from
  when all of them name the new master.
"""

REPRODUCTION = """\
## Measure it yourself

```sh
./scripts/bench               # all but the peers, in 20 minutes, on two cores with nothing else to do
./scripts/bench --check       # the same, and status 1 where a bound is broken
./scripts/bench --peers       # and the peers, which it installs first, in turns with ours
./scripts/bench --quick       # about a minute: a first impression, written to build/benchmarks
./scripts/bench --only steps  # one group of bounds; --help lists them
```

It installs what it needs, and writes this page, its charts and [results.json](results.json), which has every round.
Peers stay as they were last measured until `--peers` measures them again; their date is theirs.
"""
