"""A bounded soak in every run: each fault once, in an order of chance; `SOAK_SEED` repeats an earlier one's choices.

How soon an answer or the service comes is judged by `scripts/soak` alone, on a machine that does nothing else.
"""

import os
import secrets
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.faults.soak.checker import Durability, Promise
from tests.faults.soak.load import Load, Session
from tests.faults.soak.replicated import running_three_and_three, running_watched_servers
from tests.faults.soak.run import Soak
from tests.faults.soak.servers import Servers, running_single_server
from tests.support.loop_time import LoopTime

SEED = os.environ.get("SOAK_SEED") or secrets.token_hex(4)
GRACE_SECONDS = 8
VARIABLES = {"TOKEN_SERVICE_REFRESH_GRACE": str(GRACE_SECONDS)}
WAITS_FOR_REPLICA = VARIABLES | {"TOKEN_SERVICE_DURABILITY": "replica"}
KINDS = {"login", "exchange", "refresh", "revoke", "verify", "introspect"}
MIN_ALIVE = 6
FAILOVERS = ("switch_master", "kill_master", "freeze_master", "lose_writes")


@pytest.fixture(autouse=True)
def machine_pace(loop_time: LoopTime) -> Iterator[None]:
    """The load is another process to the service: both have the time of the machine."""
    with loop_time.running_at(1):
        yield


def has_lived(load: Load) -> bool:
    """Return True if each kind of request succeeded, and sessions will be alive at the end."""
    done = {call.kind for call in list(load.history.calls) if call.status == 200}
    return done >= KINDS and sum(map(is_kept, list(load.sessions))) >= load.lanes + MIN_ALIVE


def is_kept(session: Session) -> bool:
    """Return True for a session that is alive and belongs to a user who never logs out everywhere."""
    return not session.is_over and session.device.person in session.device.load.patient


def soak_on(servers: Servers, durability: Durability = "memory", names: Iterable[str] = ()) -> Soak:
    """Run a round with all faults of the servers, or with these. pytest shows the result."""
    promise = Promise(durability=durability, grace_seconds=GRACE_SECONDS)
    soak = Soak(servers, promise, SEED, list(servers.faults), calm_seconds=0.6, is_enough=has_lived)
    print(f"SOAK_SEED={SEED}")  # noqa: T201 - pytest shows it where the test fails
    soak.run_round(0, list(names) or list(islice(soak.shuffled_faults(), len(soak.faults))))
    for line in soak.report.lines():
        print(line)  # noqa: T201
    return soak


@pytest.mark.clause("decided-i1-one-winner", "decided-i2-one-head", "decided-i7-revocation-is-final")
@pytest.mark.clause("decided-i8-fail-closed", "decided-i8-one-deadline", "decided-i9-one-clock")
@pytest.mark.clause("decided-i10-outage-is-not-theft")
def test_invariants_hold_under_all_faults(tmp_path: Path) -> None:
    with running_single_server(tmp_path, VARIABLES) as servers:
        report = soak_on(servers).report

        assert report.violations == []
        assert set(report.faults) == set(servers.faults)
        assert report.sessions_alive >= MIN_ALIVE
        kinds = {kind for kind, status in report.calls if status == "200"}
        assert kinds >= KINDS
        assert any(status == "503" for _, status in report.calls)


@pytest.mark.long
@pytest.mark.clause("decided-redis-cluster", "decided-durability", "decided-i7-revocation-is-final")
@pytest.mark.clause("decided-i10-outage-is-not-theft", "6819-5.2.2.3-rotation-in-a-cluster")
def test_invariants_hold_during_cluster_faults(tmp_path: Path) -> None:
    with running_three_and_three(tmp_path, WAITS_FOR_REPLICA) as servers:
        report = soak_on(servers, "replica", (*FAILOVERS, "move_slot") * 3).report

        assert report.violations == []
        assert report.sessions_alive >= MIN_ALIVE


@pytest.mark.long
@pytest.mark.clause("decided-redis-sentinel", "decided-durability", "decided-i7-revocation-is-final")
@pytest.mark.clause("decided-i10-outage-is-not-theft")
def test_invariants_hold_while_masters_die_and_freeze(tmp_path: Path) -> None:
    with running_watched_servers(tmp_path, WAITS_FOR_REPLICA) as servers:
        report = soak_on(servers, "replica", FAILOVERS * 3).report

        assert report.violations == []
        assert report.sessions_alive >= MIN_ALIVE


@pytest.mark.long
def test_checker_finds_missing_replication(tmp_path: Path) -> None:
    """Otherwise those above would prove nothing: what they promise is broken here, and no more than that."""
    with running_watched_servers(tmp_path, VARIABLES) as servers:
        tries = (soak_on(servers, "replica", ["lose_writes"] * 4).report for _ in range(5))
        guilty = next(report for report in tries if report.violations)
        innocent = soak_on(servers, "memory", ["lose_writes"] * 4).report

        assert {violation.rule for violation in guilty.violations} <= {"I1", "I7", "I10"}
        assert innocent.violations == []
        assert innocent.unchecked.total() > 0
