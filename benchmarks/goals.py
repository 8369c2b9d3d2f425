"""The tables of goals and of bounds, with the function that finds each number in the results.

A goal is only wanted. A bound catches a fault: `--check` fails if a row exceeds it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks import (
    connections,
    costs,
    failovers,
    floors,
    imports,
    lag,
    logins,
    lookups,
    million,
    operations,
    outages,
    revocations,
    steps,
    streams,
    upgrade,
)
from benchmarks.load import Round
from benchmarks.results import Results, cost_ratio, keep_busy, median_of, rate_ratio, ratio_of

FindValue = Callable[[Results], float]
Reduce = Callable[[Sequence[float]], float]


def format_number(number: float | None, unit: str) -> str:
    if number is None:
        return "-"
    text = f"{number:,.0f}" if abs(number) >= 100 or number == int(number) >= 10 else f"{number:.2f}"
    return f"{text} {unit}".strip()


@dataclass(frozen=True)
class Goal:
    """A wanted value of one number. `find` raises KeyError if the run has not measured it, or only with idle servers.

    A goal of None marks a number that is only reported.
    """

    what: str
    goal: float | None
    find: FindValue
    unit: str = ""
    more_is_better: bool = True

    def measure(self, results: Results) -> float | None:
        try:
            return self.find(results)
        except KeyError:
            return None

    def judge(self, measured: float | None) -> str:
        """Return `met`, `short`, `reported` or `not measured`."""
        if measured is None:
            return "not measured"
        if self.goal is None:
            return "reported"
        printed = round(measured, 2)  # a printed 1.00 reaches 1.0
        return "met" if (printed >= self.goal if self.more_is_better else printed <= self.goal) else "short"


@dataclass(frozen=True)
class Bound:
    """A limit for every part of the row `what`. `catches` is the fault that exceeds it."""

    what: str
    limit: float
    unit: str
    catches: str
    reduce: Reduce = statistics.median

    def find_worst(self, results: Results) -> tuple[str, float] | None:
        """Return the part with the greatest value, or None if the run has not measured the row."""
        values = {part: self.reduce(rounds) for part, rounds in results.rows.get(self.what, {}).items()}
        return max(values.items(), key=lambda item: item[1], default=None)

    def judge(self, measured: float | None) -> str:
        """Return a word: `met`, `short`, or `not measured`."""
        if measured is None:
            return "not measured"
        return "met" if measured <= self.limit else "short"


def list_violations(results: Results) -> list[str]:
    """Return a line for each bound that the results exceed. A row that was not measured exceeds no bound."""
    lines = []
    for bound in BOUNDS:
        part, measured = bound.find_worst(results) or ("", None)
        if bound.judge(measured) == "short":
            value, limit = format_number(measured, bound.unit), format_number(bound.limit, bound.unit)
            place = f" ({part})" if part else ""
            lines.append(f"{bound.what}: {value}{place}; the bound is {limit}, and catches {bound.catches}")
    return lines


def cost_ratio_to(name: str, floor: str) -> FindValue:
    return lambda results: cost_ratio(results.series[name], results.series[floor])


def redis_ratio_to(name: str, floor: str) -> FindValue:
    return lambda results: ratio_of(results.series[name], results.series[floor], lambda one: one.redis_us)


def require(number: Callable[[Results], float | None]) -> FindValue:
    def find(results: Results) -> float:
        found = number(results)
        if found is None:
            raise KeyError
        return found

    return find


def _p50(round_: Round) -> float:
    return round_.p50_ms


def _p99(round_: Round) -> float:
    return round_.p99_ms


def _spread(rounds: Sequence[Round]) -> float:
    """Return p99 / p50 of the busy rounds. Raises KeyError if there are none."""
    return statistics.median(one.p99_ms / one.p50_ms for (one,) in keep_busy(rounds))


GOALS = (
    Goal("refresh / [Starlette + 1 EVALSHA]", 1.3, cost_ratio_to(operations.REFRESH, floors.EVALSHA)),
    Goal(
        "refresh, with its two lines in the log / [Starlette + 1 EVALSHA]",
        None,
        cost_ratio_to(operations.REFRESH_LOGGED, floors.EVALSHA),
    ),
    Goal(
        "refresh, Redis time / [Starlette + 1 EVALSHA], Redis time",
        2.0,
        redis_ratio_to(operations.REFRESH, floors.EVALSHA),
        more_is_better=False,
    ),
    Goal(
        "chained refresh, answers a second / oidc-provider",
        3.5,
        lambda results: rate_ratio(
            results.series[operations.CHAINED_REFRESH],
            results.series[operations.name_peer_row(operations.OIDC_PROVIDER, operations.CHAINED_REFRESH)],
        ),
    ),
    Goal("verify, Redis asked / [Starlette + 1 GET]", 1.1, cost_ratio_to(operations.VERIFY_ASKING, floors.GET)),
    Goal("introspect, Redis asked / [Starlette + 1 GET]", 1.1, cost_ratio_to(operations.INTROSPECT_ASKING, floors.GET)),
    Goal(
        "verify, from the worker's memory / [Starlette route]",
        0.85,
        cost_ratio_to(operations.VERIFY_MEMORY, floors.ROUTE),
    ),
    Goal("revoke / [Starlette + 1 EVALSHA]", 0.9, cost_ratio_to(operations.REVOKE_SESSION, floors.EVALSHA)),
    Goal("password grant / argon2id alone", 0.92, cost_ratio_to(logins.PASSWORD, logins.ARGON2ID)),
    Goal(
        "refresh, p99 in a storm of logins / in quiet",
        3.0,
        lambda results: median_of(results.series[logins.STORM], _p99) / median_of(results.series[logins.QUIET], _p99),
        more_is_better=False,
    ),
    Goal(
        "gateway's library, a check from memory",
        1.5,
        lambda results: results.lookups[lookups.CACHED],
        "µs",
        more_is_better=False,
    ),
    Goal(
        "refresh, p50 with one connection",
        0.45,
        lambda results: median_of(results.series[operations.REFRESH_ALONE], _p50),
        "ms",
        more_is_better=False,
    ),
    Goal(
        "refresh, p99 / p50 with 64 connections",
        2.5,
        lambda results: _spread(results.series[operations.REFRESH]),
        more_is_better=False,
    ),
    Goal(
        "Redis, a session with one live access token",
        650,
        require(lambda results: results.bytes_per_session),
        "bytes",
        more_is_better=False,
    ),
    Goal(
        "Redis, the same with ten live access tokens",
        3_300,
        require(lambda results: results.bytes_of_ten_tokens),
        "bytes",
        more_is_better=False,
    ),
    Goal("a worker (PSS)", 55, require(lambda results: results.worker_mib), "MiB", more_is_better=False),
    Goal(
        "a console command, start to end",
        0.25,
        require(lambda results: results.console_seconds),
        "s",
        more_is_better=False,
    ),
    Goal(
        "a million sessions on three masters / few: p50 of a refresh",
        1.1,
        lambda results: results.rows[million.MANY][million.P50][0] / results.rows[million.FEW][million.P50][0],
        more_is_better=False,
    ),
)

BOUNDS = (
    Bound(costs.REFRESH, 12, "", "a change that doubles the processor time of a refresh"),
    Bound(costs.VERIFY_ASKING, 5, "", "a change that doubles the processor time of a lookup"),
    Bound(costs.VERIFY_MEMORY, 2.5, "", "a cache that is not used"),
    Bound(costs.INTROSPECT_ASKING, 6.5, "", "a client secret that is hashed for each request"),
    Bound(connections.SPREAD, 4, "", "requests of one client that wait for a check of its secret one after the other"),
    Bound(steps.HOSTILE, 5, "ms", "work on the event loop that grows with what one request may carry"),
    Bound(revocations.STEP, 150, "", "a step of revokeAll that deletes too much at once, or grows with the sessions"),
    Bound(revocations.ANSWERED, 1.8, "s", "a revokeAll that needs a second request, since it reaches its deadline"),
    Bound(revocations.EVERYBODY, 4, "s", "users who are taken one by one"),
    Bound(imports.IMPORTED, 1, "s", "a round trip or a script for each imported user"),
    Bound(imports.UNCHANGED, 0.7, "s", "a repeated import that writes what is so already"),
    Bound(imports.P99, 2, "", "an import that takes the core of the service, or keeps Redis busy for too long"),
    Bound(imports.USER_BYTES, 800, "bytes", "a user record that grows"),
    Bound(imports.CONSOLE_MIB, 120, "MiB", "an import that keeps its file in memory"),
    Bound(lag.P99, 10, "ms", "a gateway that receives invalidations late, or polls"),
    Bound(lag.SLOWEST, 1000, "ms", "a gateway that misses an invalidation and keeps its cache for too long", max),
    Bound(streams.P99, 100, "ms", "streams that wait for each other, or that are ended by polling"),
    Bound(streams.WATCH_BYTES, 1024, "bytes", "a watch that keeps the data of its request"),
    Bound(outages.REFUSED, 2, "s", "an operation without the deadline, or one with a deadline for each of its calls"),
    Bound(outages.FLOOD, 2.5, "s", "requests whose deadline begins only at the head of the queue"),
    Bound(outages.BACK, 3, "s", "a pause between two attempts to connect that grows too long"),
    Bound(outages.LIBRARY_REFUSED, 2.2, "s", "a lookup without the deadline, or one that waits behind others"),
    Bound(outages.LIBRARY_BACK, 2.5, "s", "a pause between two attempts to connect that grows too long"),
    Bound(failovers.BACK, 1.5, "s", "a service that stays with a master that was replaced"),
    Bound(failovers.REFUSED, 2, "s", "a request that waits for the failover beyond its deadline"),
    Bound(failovers.READY, 2.5, "s", "connections, such as those for lookups, that stay with the old master"),
    Bound(upgrade.WRONG, 0, "", "a version that cannot read or write the records of another one"),
)
