"""A run: rounds of load and faults, each of which is checked by its history and then forgotten."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from service.crypto.keyring import Keyring
from tests.conftest import SECRET_KEY
from tests.faults.soak.checker import Generation, Promise, Verdict, Violation, check_history
from tests.faults.soak.clock import rest
from tests.faults.soak.history import Call, Fault, History, Stall
from tests.faults.soak.load import Load
from tests.faults.soak.proof import Proof
from tests.faults.soak.servers import PEOPLE, Servers
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

KEYRING = Keyring((SECRET_KEY.encode(),))
PEOPLE_OF_A_ROUND = 12
BEYOND_LATEST_SECONDS = 2.5


def read_generation(text: str) -> Generation | None:
    token = KEYRING.parse_refresh_token(text)
    return None if token is None else Generation(token.family_digest, token.generation)


@dataclass
class Report:
    """The result of all rounds so far."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0
    sessions: int = 0
    sessions_alive: int = 0
    rounds: int = 0
    violations: list[Violation] = field(default_factory=list)
    unchecked: Counter[str] = field(default_factory=Counter)
    proof: Proof = field(default_factory=Proof)

    def add(self, history: History, verdict: Verdict) -> None:
        self.rounds += 1
        self.calls.update((call.kind, str(call.status or call.trouble)) for call in history.calls)
        self.faults.update(fault.name for fault in history.faults)
        answered = [call.ended - call.started for call in history.calls if call.status and not history.is_hit(call)]
        self.slowest_seconds = max(self.slowest_seconds, *answered)
        self.sessions += sum(bool(call.refresh_token) for call in history.calls if call.kind != "refresh")
        self.sessions_alive += count_alive(history)
        self.violations += verdict.violations
        self.unchecked += verdict.unchecked
        self.proof.add(history, verdict)

    @property
    def requests(self) -> int:
        return self.calls.total()

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report."""
        yield f"{self.requests} requests in {self.rounds} rounds; the slowest answer took {self.slowest_seconds:.2f} s"
        for kind in dict.fromkeys(kind for kind, _ in sorted(self.calls)):
            statuses = sorted((status, number) for (of, status), number in self.calls.items() if of == kind)
            yield f"    {kind}: " + ", ".join(f"{status} {number} times" for status, number in statuses)
        yield f"{self.faults.total()} faults"
        for name, number in sorted(self.faults.items()):
            yield f"    {name}: {number}"
        yield f"{self.sessions} sessions, {self.sessions_alive} of them alive and refreshed at the end of their round"
        for reason, number in sorted(self.unchecked.items()):
            yield f"not checked, {number} times: {reason}"
        yield f"{len(self.violations)} violations"
        for violation in self.violations:
            yield f"  {violation}"
        yield from self.proof.lines()


def count_alive(history: History) -> int:
    """Sessions whose last refresh went through, after the last fault."""
    last = max((fault.ended for fault in history.faults), default=0.0)
    found = {}
    for call in sorted(history.calls, key=lambda call: call.ended):
        token = read_generation(call.sent) if call.kind == "refresh" and call.ended > last else None
        if token is not None and call.status in (200, 400):
            found[token.family] = call.status == 200
    return sum(found.values())


def write_history(file: Path, history: History) -> None:
    """Write a line for each fault, stall and request, in the order in which they began."""
    everything: tuple[Fault | Stall | Call, ...] = (*history.faults, *history.stalls, *history.calls)
    events = [(each.started, str(each)) for each in everything]
    file.write_text("".join(f"{line}\n" for _, line in sorted(events)))


@dataclass
class Soak:
    """`calm_seconds` is the longest pause between two faults; `folder` takes the histories that break an invariant.

    A round goes on until its load `is_enough`.
    """

    servers: Servers
    promise: Promise
    seed: str
    faults: Sequence[str]
    rate: float = 60
    calm_seconds: float = 2.0
    folder: Path | None = None
    is_enough: Callable[[Load], bool] = lambda load: True
    report: Report = field(default_factory=Report)
    requests_of_round: int = 0

    def run_round(self, number: int, names: Sequence[str], tell: Callable[[], None] = lambda: None) -> Verdict:
        """Run a load with these faults, one after the other. `tell` is called after each."""
        rng = random.Random(f"{self.seed} {number}")
        first = number * PEOPLE_OF_A_ROUND % len(PEOPLE)
        ports = [instance.port for instance in self.servers.instances]
        people = PEOPLE[first : first + PEOPLE_OF_A_ROUND]
        latest, back = self.promise.latest_seconds, self.promise.back_seconds
        load = Load(
            ports,
            people,
            f"{self.seed} {number}",
            self.rate,
            grace_seconds=self.promise.grace_seconds,
            give_up_seconds=MAX_WAIT_SECONDS if latest is None else latest + BEYOND_LATEST_SECONDS,
        )
        self.servers.history = load.history
        load.start()
        try:
            for name in names:
                rest(rng, 0.3, self.calm_seconds)
                load.history.faults.append(self.servers.faults[name](rng))
                self.requests_of_round = len(load.history.calls)
                tell()
            if back is not None:
                rest(rng, back, back)
            wait_until(lambda: all(instance.is_ready() for instance in self.servers.instances), "all to be ready")
            wait_until(lambda: self.is_enough(load), "the load to do enough")
        except Exception:
            load.finish()
            raise
        history = load.finish()
        verdict = check_history(history, self.promise, read_generation)
        if verdict.violations and self.folder is not None:
            write_history(self.folder / f"round-{number}.txt", history)
        self.report.add(history, verdict)
        self.requests_of_round = 0
        return verdict

    def shuffled_faults(self) -> Iterator[str]:
        """Each once, in an order of chance, and again without end."""
        rng = random.Random(self.seed)
        while True:
            yield from rng.sample(self.faults, len(self.faults))
