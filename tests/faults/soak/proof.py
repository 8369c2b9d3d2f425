"""The part of the report that states what a run proves: revocations, lost sessions, and seconds without an answer."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import ceil
from typing import Final

from tests.faults.soak.checker import Verdict
from tests.faults.soak.history import UNKNOWN_OUTCOMES, Call, Fault, History

PATIENCE_SECONDS: Final = 1.0
"""The longest pause before a client repeats its request. A later request with the same token is another one."""
AFTERMATH_SECONDS: Final = 3.0
"""The time after a fault in which a request without an answer counts as interrupted by that fault."""
NO_FAULT: Final = "no fault"


@dataclass
class Proof:
    """`waits` has, by kind of fault, the seconds that each interrupted client waited, counted from the fault."""

    revocations: int = 0
    undone: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, history: History, verdict: Verdict) -> None:
        self.revocations += verdict.revocations
        self.undone += len(verdict.undone)
        self.lost += verdict.lost
        for name, seconds in find_waits(history):
            self.waits[name].append(seconds)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report."""
        yield f"{self.revocations} answered revocations, {self.undone} of them undone"
        yield f"{self.lost.total()} honest sessions lost"
        for reason, number in sorted(self.lost.items()):
            yield f"    {number}: {reason}"
        yield "seconds without an answer, from the fault until a client that repeats its request has an answer"
        for name, waits in sorted(self.waits.items()):
            ordered = sorted(waits)
            median = ordered[ceil(len(ordered) / 2) - 1]
            yield f"    {name}: p50 {median:.2f}, worst {ordered[-1]:.2f} (interrupted requests: {len(waits)})"


def find_waits(history: History) -> Iterator[tuple[str, float]]:
    """Yield the fault and the wait of each request that had 503 or no answer, and was repeated until it had one.

    Logins and pages are left out, because a client that repeats them cannot be told from another one.
    """
    tries = sorted((call for call in history.calls if call.sent), key=_identify)
    for _, calls in groupby(tries, _identify):
        yield from _find_waits_of(sorted(calls, key=lambda call: call.started), history.faults)


def _identify(call: Call) -> tuple[str, str, str]:
    return call.kind, call.client_id, call.sent


def _find_waits_of(calls: Sequence[Call], faults: Sequence[Fault]) -> Iterator[tuple[str, float]]:
    first: Call | None = None
    latest_ended = 0.0
    for call in calls:
        if first is not None and call.started > latest_ended + PATIENCE_SECONDS:
            first = None
        if call.status in UNKNOWN_OUTCOMES:
            first = first or call
            latest_ended = max(latest_ended, call.ended)
        elif first is not None and call.started >= first.ended:
            fault = _find_fault(first, faults)
            yield (fault.name, call.ended - fault.started) if fault else (NO_FAULT, call.ended - first.started)
            first = None


def _find_fault(call: Call, faults: Sequence[Fault]) -> Fault | None:
    """Return the latest fault that may have interrupted the call, or None."""
    since = call.started - AFTERMATH_SECONDS
    possible = [
        fault for fault in faults if fault.overlaps(since, call.ended) and fault.instance in (None, call.instance)
    ]
    return max(possible, key=lambda fault: fault.started, default=None)
