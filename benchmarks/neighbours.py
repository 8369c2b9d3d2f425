"""What another caller notices of a hostile request: the table of docs/benchmarks/neighbours.md.

One connection asks `verify`, and a process of its own sends a hostile request again and again beside it.
"""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.arena import Arena
from benchmarks.load import LoadFailed
from benchmarks.processes import LOAD_CORE, await_idle, on_core, pss_mib
from benchmarks.results import Machine, Notice
from benchmarks.tables import format_machine, format_table
from tests.support.clients_and_users import VERIFY
from tests.support.hostile_requests import Caller, HostileRequest, get, make_hostile_requests, make_variables
from tests.support.waiting import MAX_WAIT_SECONDS

NOTICED = "`verify` beside a hostile request, p99"
PAGE = "neighbours.md"
SECONDS = 0.3
PAUSE_SECONDS = 0.0005
QUIET_EVERY = 10
ROUNDS = 3
ENOUGH_MS = 5.0
LEAST = 100
UNDISTURBED = "undisturbed"

HEAD = """\
# Latency of other callers during hostile requests

`./scripts/bench` measured this and wrote it, in one run.

Another caller asks `verify` on one connection. At the same time an attacker sends a hostile request on another
connection, and sends it again as soon as it is answered. The times are those of the other caller. If the 99th
percentile of the first round is above 5 ms, two more rounds are measured. The table has the round whose 99th
percentile is the median of the three. Each answer to the attacker has the expected status, and none is a refusal by a
limit of attempts. "Sent" counts the hostile requests of that round. "Memory" is how much the worker grew during the
round; argon2id takes 19 MiB for its first check. The worker has a core for itself. The caller, the attacker and Redis
share the other one. The hostile requests are in [hostile_requests.py](../../tests/support/hostile_requests.py).
"""


def measure_notices(folder: Path) -> list[Notice]:
    """The first one is undisturbed: what was seen in all quiet times between the others."""
    with running_neighbour(folder, SECONDS) as neighbour:
        quiet: list[float] = []
        notices = []
        for number, hostile in enumerate(make_hostile_requests(neighbour.access_token)):
            if number % QUIET_EVERY == 0:
                quiet += neighbour.ask()
            notices.append(_measure_median(neighbour, hostile))
    return [make_notice(UNDISTURBED, quiet), *notices]


def _measure_median(neighbour: Neighbour, hostile: HostileRequest) -> Notice:
    """Return the first round where it is quick, else the median of several."""
    first = neighbour.measure_round(hostile)
    if first.p99_ms <= ENOUGH_MS:
        return first
    rounds = [first, *(neighbour.measure_round(hostile) for _ in range(ROUNDS - 1))]
    return sorted(rounds, key=lambda one: one.p99_ms)[ROUNDS // 2]


@contextmanager
def running_neighbour(folder: Path, seconds: float) -> Iterator[Neighbour]:
    """Start a service, the other caller and the attacker."""
    arena = Arena(folder, "neighbours")
    try:
        ((access_token, _),) = arena.start_sessions(1)
        with (
            arena.running(everywhere=False, LOG_LEVEL="info", **make_variables(folder)) as service,
            on_core(LOAD_CORE),
            socket.create_connection(("127.0.0.1", service.port)) as asking,
            _running_attacker(service.port) as attacker,
        ):
            neighbour = Neighbour(service.process.pid, access_token, asking, attacker, seconds)
            neighbour.ask()
            yield neighbour
    finally:
        arena.close()


@dataclass(frozen=True)
class Neighbour:
    """The other caller, and the attacker beside it. Each round lasts this many seconds."""

    pid: int
    access_token: str
    asking: socket.socket
    attacker: Connection
    seconds: float

    def measure_round(self, hostile: HostileRequest) -> Notice:
        """Raises LoadFailed where an answer to the attacker is not the expected one."""
        before = pss_mib(self.pid)
        self.attacker.send(hostile)
        latencies = self.ask()
        self.attacker.send(None)
        sent = _hear(self.attacker)
        await_idle(self.pid)
        return make_notice(hostile.name, latencies, sent, pss_mib(self.pid) - before)

    def ask(self) -> list[float]:
        """Return the latencies in milliseconds of one request after the other, at least LEAST of them."""
        request = get(VERIFY, f"Authorization: Bearer {self.access_token}")
        latencies: list[float] = []
        end = time.perf_counter() + self.seconds
        while (began := time.perf_counter()) < end or len(latencies) < LEAST:
            self.asking.sendall(request)
            if not self.asking.recv(1 << 16).startswith(b"HTTP/1.1 200"):
                raise LoadFailed("verify did not answer 200")
            latencies.append((time.perf_counter() - began) * 1000)
            time.sleep(PAUSE_SECONDS)
        return latencies


def _hear(attacker: Connection) -> int:
    """Return how often the attacker sent its request. Raises LoadFailed with what the attacker says is wrong."""
    if not attacker.poll(MAX_WAIT_SECONDS):
        raise LoadFailed("the attacker does not answer")
    told: int | str = attacker.recv()
    if isinstance(told, str):
        raise LoadFailed(told)
    return told


def make_notice(name: str, latencies: list[float], sent: int = 0, growth_mib: float = 0.0) -> Notice:
    ordered = sorted(latencies)
    p50_ms, p99_ms = (ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
    return Notice(name, p50_ms, p99_ms, ordered[-1], sent, growth_mib)


@contextmanager
def _running_attacker(port: int) -> Iterator[Connection]:
    """A process that is ready. It attacks with what it is sent until it is sent None, and answers how often it did.

    Its answer is a text where the service did not answer as expected.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_attack, args=(port, theirs), daemon=True)
    process.start()
    try:
        _hear(ours)
        yield ours
    finally:
        process.kill()
        process.join()


def _attack(port: int, orders: Connection) -> None:
    orders.send(0)
    while True:
        hostile: HostileRequest = orders.recv()
        told = _send_again_and_again(port, hostile, orders)
        orders.recv()
        orders.send(told)


def _send_again_and_again(port: int, hostile: HostileRequest, orders: Connection) -> int | str:
    """Return the number of requests when an order waits, or an account of the first unexpected answer."""
    caller, sent = Caller(port), 0
    try:
        while not orders.poll():
            answer = caller.ask(hostile)
            if not hostile.is_expected(answer):
                return f"{hostile.name}: {answer} to request {sent + 1}, not {sorted(hostile.statuses)}"
            sent += 1
        return sent
    finally:
        caller.close()


def format_page(machine: Machine, notices: Sequence[Notice]) -> str:
    return "\n".join([HEAD, format_machine(machine), _format(notices)])


def _format(notices: Sequence[Notice]) -> str:
    rows = [
        [
            notice.name,
            *(f"{value:.2f}" for value in (notice.p50_ms, notice.p99_ms, notice.most_ms)),
            f"{notice.sent}",
            f"{notice.growth_mib:.1f}",
        ]
        for notice in notices
    ]
    return format_table(["`verify` beside", "p50 ms", "p99 ms", "most ms", "sent", "memory MiB"], rows)
