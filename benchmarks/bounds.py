"""The table of bounds: limits that no change may exceed, with the function that finds each number in the results.

A goal is only wanted. A bound catches a fault, and `--check` fails if a row exceeds it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks import (
    busy,
    changes,
    costs,
    failovers,
    following,
    lag,
    neighbours,
    outages,
    parsers,
    providers,
    refusals,
    revocations,
    seeds,
    slots,
    steps,
)
from benchmarks.results import WHOLE, Results
from benchmarks.tables import format_number

MAX_REPORTED_PARTS = 5

FindValues = Callable[[Results], dict[str, float]]
Reduce = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class Bound:
    """A limit for every part of a row. `catches` is the fault that exceeds it.

    `find` returns the value of each part, and raises KeyError if the run has not measured the row. The default takes
    the row of the same name and the median of its rounds.
    """

    what: str
    limit: float
    unit: str
    catches: str
    find: FindValues | None = None

    def get_values(self, results: Results) -> dict[str, float]:
        """Return the value of each part, or nothing if the run has not measured the row."""
        try:
            return (self.find or each(self.what))(results)
        except KeyError:
            return {}

    def find_worst(self, results: Results) -> tuple[str, float] | None:
        """Return the part with the greatest value, or None if the run has not measured the row."""
        return max(self.get_values(results).items(), key=lambda item: item[1], default=None)

    def judge(self, measured: float | None) -> str:
        """Return a word: `met`, `short`, or `not measured`."""
        if measured is None:
            return "not measured"
        return "met" if measured <= self.limit else "short"

    def describe_violation(self, results: Results) -> str:
        """Return a line about the parts that exceed the bound, the worst first, or an empty text if none does."""
        values = sorted(self.get_values(results).items(), key=lambda item: -item[1])
        broken = [(part, format_number(value, self.unit)) for part, value in values if value > self.limit]
        if not broken:
            return ""
        parts = ", ".join(
            f"{measured} ({part})" if part else measured for part, measured in broken[:MAX_REPORTED_PARTS]
        )
        more = f" and {len(broken) - MAX_REPORTED_PARTS} more" if len(broken) > MAX_REPORTED_PARTS else ""
        limit = format_number(self.limit, self.unit)
        return f"{self.what}: {parts}{more}; the bound is {limit}, and catches {self.catches}"


def each(row: str, reduce: Reduce = statistics.median) -> FindValues:
    """Take one value of the rounds of each part."""
    return lambda results: {part: reduce(values) for part, values in results.rows[row].items()}


def ratio(row: str, part: str, other: str) -> FindValues:
    """Divide the least value of a part by that of another."""
    return lambda results: {WHOLE: min(results.rows[row][part]) / min(results.rows[row][other])}


def list_violations(results: Results) -> list[str]:
    """Return a line for each bound that the results exceed."""
    return [line for bound in BOUNDS if (line := bound.describe_violation(results))]


def get_caller_latencies(results: Results) -> dict[str, float]:
    """Return the latency of another caller during each hostile request."""
    if not results.notices:
        raise KeyError(neighbours.CALLER_P99)
    return {notice.name: notice.p99_ms for notice in results.notices if notice.name != neighbours.UNDISTURBED}


def get_busy_ratio(results: Results) -> dict[str, float]:
    if results.busy_ratio is None:
        raise KeyError
    return {WHOLE: results.busy_ratio}


BOUNDS = (
    Bound(
        "refresh, in the application / an empty route",
        12,
        "",
        "a change that doubles the processor time of a refresh",
        ratio(costs.COSTS, costs.REFRESH, costs.ROUTE),
    ),
    Bound(
        "verify, Redis asked, in the application / an empty route",
        5,
        "",
        "a change that doubles the processor time of a lookup",
        ratio(costs.COSTS, costs.VERIFY_ASKING, costs.ROUTE),
    ),
    Bound(
        "verify, from memory, in the application / an empty route",
        2.5,
        "",
        "a cache that is not used, or a change that doubles the processor time",
        ratio(costs.COSTS, costs.VERIFY_MEMORY, costs.ROUTE),
    ),
    Bound(
        "introspect, Redis asked, in the application / an empty route",
        6.5,
        "",
        "a client secret that is hashed for each request, or a change that doubles the processor time",
        ratio(costs.COSTS, costs.INTROSPECT_ASKING, costs.ROUTE),
    ),
    Bound(busy.BUSY, 1.6, "", "a record of a session that grows with each refresh", get_busy_ratio),
    Bound(refusals.REFUSALS, 2.5, "", "no hash for an unknown user, or none for a password that is too long"),
    Bound(parsers.GROWTH, 3, "", "a parser whose time grows with the square of its input"),
    Bound(
        parsers.SCOPES, 200, "µs", "a scope that is split as a whole before it is refused", each(parsers.SCOPES, min)
    ),
    Bound(steps.HOSTILE, 5, "ms", "work on the event loop that grows with what one request may carry"),
    Bound(steps.OUTGOING, 5, "ms", "certificates that are read, or modules that are imported, on the event loop"),
    Bound(
        neighbours.CALLER_P99, 10, "ms", "a request that keeps the worker from its other callers", get_caller_latencies
    ),
    Bound(providers.SLOWDOWN, 1.2, "", "an organisation whose logins take threads or connections of others"),
    Bound(seeds.APPLIED, 15, "s", "one round trip or one hash for each user of a seed file"),
    Bound(seeds.UNCHANGED, 10, "s", "users that are written again though nothing changed"),
    Bound(seeds.GROWTH, 200, "MiB", "a copy of the file or of its entries for each batch"),
    Bound(revocations.STEP, 150, "", "a step of revokeAll that deletes too much at once, or grows with the sessions"),
    Bound(revocations.ANSWERED, 1.8, "s", "a revokeAll that needs a second request, since it reaches its deadline"),
    Bound(
        changes.IN_FORCE,
        1000,
        "ms",
        "a worker that misses an invalidation of the registry and keeps its cache for too long",
        each(changes.IN_FORCE, max),
    ),
    Bound(lag.P99, 10, "ms", "a gateway that receives invalidations late, or polls"),
    Bound(
        lag.SLOWEST,
        1000,
        "ms",
        "a gateway that misses an invalidation and keeps its cache for too long",
        each(lag.SLOWEST, max),
    ),
    Bound(outages.REFUSED, 2, "s", "an operation without the deadline, or one with a deadline for each of its calls"),
    Bound(outages.FLOOD, 2.5, "s", "requests whose deadline begins only at the head of the queue"),
    Bound(outages.BACK, 3, "s", "a pause between two attempts to connect that grows too long"),
    Bound(outages.READY, 5, "s", "a service that needs a restart to apply its seed or to become ready"),
    Bound(outages.LIBRARY_REFUSED, 2.2, "s", "a lookup without the deadline, or one that waits behind others"),
    Bound(outages.LIBRARY_LATE, 0.5, "s", "a lookup that waits until the connection to a frozen Redis is closed"),
    Bound(outages.LIBRARY_BACK, 2.5, "s", "a pause between two attempts to connect that grows too long"),
    Bound(failovers.BACK, 1.5, "s", "a service that stays with a master that was replaced"),
    Bound(failovers.REFUSED, 2, "s", "a request that waits for the failover beyond its deadline"),
    Bound(failovers.READY, 2.5, "s", "connections, such as those for lookups, that stay with the old master"),
    Bound(following.FOLLOWS, 2, "s", "a cache that stays with a master that was replaced"),
    Bound(following.NOTIFIED, 0.5, "s", "a missing subscription to invalidations of the new master"),
    Bound(
        slots.REFUSED,
        1,
        "%",
        "a wait that is shorter than the move of a slot, or a refused command that is not repeated",
    ),
)
