"""The part of the report that states what a run proves: revocations, lost sessions, and seconds without an answer."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from statistics import median_high
from typing import Final, NamedTuple

from tests.faults.soak.checker import Verdict
from tests.faults.soak.history import UNKNOWN_OUTCOMES, Call, Fault, History

PATIENCE_SECONDS: Final = 1.0
"""The longest pause before a client repeats its request. A later request with the same token is another one."""
AFTERMATH_SECONDS: Final = 3.0
"""The time after a fault in which a request without an answer counts as interrupted by that fault."""
NO_FAULT: Final = "no fault"
SEVERAL: Final = "several faults in a row"


class Wait(NamedTuple):
    """The seconds until the answer, counted from the fault and from the first try without an answer."""

    from_fault: float
    from_first_try: float


@dataclass
class Proof:
    """`waits` has, by kind of fault, the waits of interrupted clients."""

    revocations: int = 0
    undone: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    waits: dict[str, list[Wait]] = field(default_factory=lambda: defaultdict(list))

    def add(self, history: History, verdict: Verdict) -> None:
        self.revocations += verdict.revocations
        self.undone += len(verdict.undone)
        self.lost += verdict.lost
        for name, wait in find_waits(history):
            self.waits[name].append(wait)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report."""
        yield f"{self.revocations} answered revocations, {self.undone} of them undone"
        yield f"{self.lost.total()} honest sessions lost"
        for reason, number in sorted(self.lost.items()):
            yield f"    {number}: {reason}"
        yield "seconds without an answer, for requests that were interrupted and repeated"
        for name, waits in sorted(self.waits.items()):
            from_fault, from_first_try = (_summarize(seconds) for seconds in zip(*waits, strict=True))
            yield f"    {name}, {len(waits)} times: {from_fault} from the fault; {from_first_try} from the first try"


def _summarize(seconds: Sequence[float]) -> str:
    return f"p50 {median_high(seconds):.2f}, worst {max(seconds):.2f}"


def find_waits(history: History) -> Iterator[tuple[str, Wait]]:
    """Yield the fault and the wait of each request that had 503 or no answer, and was repeated until it had one.

    Logins and pages are left out, because a client that repeats them cannot be told from another one.
    """
    tries = sorted((call for call in history.calls if call.sent), key=_identify)
    for _, calls in groupby(tries, _identify):
        yield from _find_waits_of(sorted(calls, key=lambda call: call.started), history.faults)


def _identify(call: Call) -> tuple[str, str, str]:
    return call.kind, call.client_id, call.sent


def _find_waits_of(calls: Sequence[Call], faults: Sequence[Fault]) -> Iterator[tuple[str, Wait]]:
    failed: list[Call] = []
    for call in calls:
        if failed and call.started > max(each.ended for each in failed) + PATIENCE_SECONDS:
            failed = []
        if call.status in UNKNOWN_OUTCOMES:
            failed.append(call)
        elif failed and call.started >= failed[0].ended:
            fault, later = _find_fault(failed[0], faults), _find_fault(failed[-1], faults)
            name = SEVERAL if later not in (fault, None) else fault.name if fault else NO_FAULT
            waited = call.ended - failed[0].started
            yield name, Wait(call.ended - fault.started if fault else waited, waited)
            failed = []


def _find_fault(call: Call, faults: Sequence[Fault]) -> Fault | None:
    """Return the latest fault that may have interrupted the call, or None."""
    since = call.started - AFTERMATH_SECONDS
    possible = [
        fault for fault in faults if fault.overlaps(since, call.ended) and fault.instance in (None, call.instance)
    ]
    return max(possible, key=lambda fault: fault.started, default=None)
