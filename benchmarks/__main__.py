"""Measure the service, compare it with minimal applications, and write a report.

Measurements that are compared take turns within one run.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.connections import measure_connections
from benchmarks.console import measure_console
from benchmarks.costs import count_instructions, measure_costs
from benchmarks.failovers import measure_failovers
from benchmarks.floors import APPLICATIONS, EVALSHA_OF_BROWSER, running_floor
from benchmarks.goals import list_violations
from benchmarks.imports import measure_imports
from benchmarks.lag import measure_lag
from benchmarks.load import BROWSER_HEADERS, measure_in_turns
from benchmarks.logins import measure_logins
from benchmarks.lookups import measure_lookups
from benchmarks.memory import measure_session_bytes, measure_worker
from benchmarks.million import measure_million
from benchmarks.operations import make_chained_refresh, make_targets
from benchmarks.outages import measure_outages
from benchmarks.peers import PEERS, Peer, read_versions, running_peer
from benchmarks.report import format_report
from benchmarks.results import Results, Rows, Series, describe_machine, describe_redis
from benchmarks.revocations import measure_revocations
from benchmarks.steps import measure_steps
from benchmarks.streams import measure_streams
from benchmarks.testbed import Testbed, running_testbed
from benchmarks.upgrade import measure_upgrade
from tests.support.servers import CHECKOUT, server_binary

REPORT = CHECKOUT / "build" / "benchmarks"


@dataclass(frozen=True)
class Size:
    """The number of rounds, their length in seconds, and the number of sessions."""

    rounds: int
    seconds: int
    sessions: int


FULL = Size(rounds=9, seconds=3, sessions=100_000)
QUICK = Size(rounds=2, seconds=1, sessions=10_000)


@dataclass(frozen=True)
class Group:
    """A measurement for bounds, with a Redis of its own. `measure` gets the number of rounds.

    A quick run uses `quick_rounds`. If they are None, it leaves the group out. A `long` group is measured only if
    `--only` names it. `option` is the argument that `measure` gets by name.
    """

    measure: Callable[..., Rows]
    rounds: int
    quick_rounds: int | None = None
    option: str | None = None
    long: bool = False


GROUPS = {
    "costs": Group(measure_costs, rounds=40, quick_rounds=5),
    "instructions": Group(count_instructions, rounds=1),
    "connections": Group(measure_connections, rounds=3),
    "steps": Group(measure_steps, rounds=9, quick_rounds=3),
    "revocations": Group(measure_revocations, rounds=5),
    "import": Group(measure_imports, rounds=3),
    "lag": Group(measure_lag, rounds=3),
    "streams": Group(measure_streams, rounds=3),
    "outages": Group(measure_outages, rounds=3),
    "failovers": Group(lambda _, rounds: measure_failovers(rounds), rounds=3),
    "million": Group(measure_million, rounds=1, option="sessions", long=True),
    "upgrade": Group(measure_upgrade, rounds=3, quick_rounds=1, option="upgrade_from", long=True),
}


def main() -> int:
    """Return the exit status: 1 if `--check` finds a row that exceeds its bound, else 0."""
    arguments = _parse_arguments()
    # scripts/run lets Ctrl-C end the imports silently. From here on the servers must be stopped.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    peers = PEERS if arguments.peers and not arguments.only else ()
    for peer in peers:
        peer.install(peer.folder)
    results = Results(describe_machine(describe_redis(server_binary())))
    if peers:
        results.machine.versions.update(read_versions())
    with tempfile.TemporaryDirectory() as name:
        if not arguments.only:
            _measure(results, QUICK if arguments.quick else FULL, Path(name), peers)
        for group in arguments.only or choose_groups(quick=arguments.quick):
            _log_progress(group)
            measure_group(results, group, Path(name), arguments)
    report = format_report(results)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "README.md").write_text(report)
    _print(report)
    return report_violations(results) if arguments.check else 0


def choose_groups(*, quick: bool) -> list[str]:
    """Return the names of the groups of a run without `--only`."""
    return [name for name, group in GROUPS.items() if not group.long and (group.quick_rounds or not quick)]


def measure_group(results: Results, name: str, folder: Path, arguments: argparse.Namespace) -> None:
    """Measure one group and add its values to the results."""
    group = GROUPS[name]
    rounds = (arguments.quick and group.quick_rounds) or group.rounds
    options = {group.option: getattr(arguments, group.option)} if group.option else {}
    with running_testbed(folder, name) as testbed:
        results.rows |= group.measure(testbed, rounds, **options)


def _parse_arguments() -> argparse.Namespace:
    long = [name for name, group in GROUPS.items() if group.long]
    parser = argparse.ArgumentParser("scripts/bench", description=__doc__, add_help=True)
    parser.add_argument("--quick", action="store_true", help="run for about a minute, with fewer rounds and rows")
    parser.add_argument("--check", action="store_true", help="exit with status 1 if a row exceeds its bound")
    parser.add_argument(
        "--only",
        action="append",
        choices=tuple(GROUPS),
        metavar="GROUP",
        help=f"measure only this group: {', '.join(GROUPS)}. {' and '.join(long)} run only if they are named",
    )
    parser.add_argument("--sessions", type=int, default=1_000_000, metavar="N", help="sessions of million")
    parser.add_argument("--upgrade-from", default="e0e302d8", metavar="COMMIT", help="earlier version of upgrade")
    parser.add_argument("--peers", action="store_true", help="also install and measure other servers")
    parser.add_argument("--output", type=Path, default=REPORT, metavar="FOLDER", help="write the report here")
    return parser.parse_args()


def report_violations(results: Results) -> int:
    """Print each bound that is exceeded, and return the exit status.

    A row that was not measured exceeds no bound.
    """
    broken = list_violations(results)
    for line in broken:
        _print(f"Broken: {line}")
    return 1 if broken else 0


def _measure(results: Results, size: Size, folder: Path, peers: Sequence[Peer]) -> None:
    with running_testbed(folder, "requests") as testbed:
        _log_progress(f"requests: rounds of {size.seconds} s, {size.rounds} of each")
        results.series |= _measure_requests(testbed, size, peers)
        _log_progress("lookups of the gateway's library")
        results.lookups = measure_lookups(testbed, size.rounds)
        _log_progress("logins")
        rounds = 1 if size is QUICK else size.rounds
        results.series |= measure_logins(testbed, rounds, size.seconds)
    with running_testbed(folder, "memory", "--appendonly", "no") as testbed:
        _log_progress(f"memory: {size.sessions} sessions, a worker")
        results.bytes_per_session = measure_session_bytes(testbed, size.sessions, access_tokens=1)
        # A quarter of the sessions has as many keys, so that Redis' tables of keys are equally full.
        results.bytes_of_ten_tokens = measure_session_bytes(testbed, size.sessions // 4, access_tokens=10)
        results.worker_mib = measure_worker(testbed, size.seconds)
        _log_progress("a console command")
        results.console_seconds = measure_console(testbed)


def _measure_requests(testbed: Testbed, size: Size, peers: Sequence[Peer]) -> Series:
    """Return the rounds of the floors, the service and the peers. All of them take turns."""
    with ExitStack() as running:
        targets = [running.enter_context(running_floor(name, testbed.deployment.redis)) for name in APPLICATIONS]
        targets.append(replace(targets[-1], name=EVALSHA_OF_BROWSER, headers=BROWSER_HEADERS))
        uncached = running.enter_context(testbed.running())
        cached = running.enter_context(testbed.running(TOKEN_SERVICE_VERIFY_CACHE="on"))
        logging = running.enter_context(testbed.running(LOG_LEVEL="info"))
        targets += make_targets(testbed, uncached, cached, logging)
        if peers:
            targets.append(make_chained_refresh(testbed, uncached))
        targets += [target for peer in peers for target in running.enter_context(running_peer(peer, testbed))]
        return measure_in_turns(targets, size.rounds, size.seconds, warm=size is FULL)


def _log_progress(line: str) -> None:
    sys.stderr.write(f"scripts/bench: {line}\n")


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
