"""`scripts/bench`: measures the service beside the least that its answers could cost, and writes a report.

All that is compared is measured in turns within one run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.arena import Arena, running_arena
from benchmarks.bounds import list_broken
from benchmarks.busy import measure_busy_session
from benchmarks.floors import APPLICATIONS, running_floor
from benchmarks.groups import ALL, choose_groups, measure_group
from benchmarks.load import measure_in_turns
from benchmarks.logins import measure_logins
from benchmarks.lookups import measure_lookups
from benchmarks.memory import measure_growth, measure_session_bytes, measure_worker
from benchmarks.operations import make_targets
from benchmarks.peers import PEERS, Peer, find_versions, running_peer
from benchmarks.report import COMPARED, summarise, write_report
from benchmarks.results import Peers, Results, Series, describe_machine, describe_redis, load_results
from benchmarks.scale import measure_many_sessions, measure_workers
from tests.support.servers import CHECKOUT, server_binary

REPORT, QUICK_REPORT = CHECKOUT / "docs" / "benchmarks", CHECKOUT / "build" / "benchmarks"


@dataclass(frozen=True)
class Size:
    """How often and for how long, and with how many sessions. Without `many` what takes long is left out."""

    rounds: int
    seconds: int
    sessions: int
    many: int | None


FULL = Size(rounds=9, seconds=3, sessions=100_000, many=1_000_000)
QUICK = Size(rounds=2, seconds=1, sessions=10_000, many=None)


def main() -> int:
    """Return the exit status: 1 where `--check` finds a bound that is broken."""
    arguments = _parse_arguments()
    is_part = bool(arguments.only)
    peers = () if is_part or not arguments.peers else PEERS
    for peer in peers:
        peer.install(peer.folder)
    size = QUICK if arguments.quick else FULL
    folder: Path = arguments.output or (QUICK_REPORT if arguments.quick or is_part else REPORT)
    earlier = load_results(folder)
    machine = describe_machine(describe_redis(server_binary()))
    results = Results(machine, quick=arguments.quick, seconds=size.seconds, sessions=size.sessions)
    if earlier is not None and not is_part:
        results.peers = earlier.peers
    with tempfile.TemporaryDirectory() as name:
        if not is_part:
            _measure(results, size, Path(name), peers)
        for group in arguments.only or choose_groups(quick=arguments.quick):
            _say_what(group)
            measure_group(results, group, Path(name), quick=arguments.quick)
    write_report(results, folder)
    _say(summarise(results))
    _say(f"The report: {folder / 'README.md'}")
    return check(results) if arguments.check else 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("scripts/bench", description=__doc__, add_help=True)
    parser.add_argument("--quick", action="store_true", help="about a minute: fewer rounds, and not all rows")
    parser.add_argument("--check", action="store_true", help="end with status 1 where a row exceeds its bound")
    parser.add_argument(
        "--only", action="append", choices=ALL, metavar="GROUP", help=f"only a group of bounds, of {', '.join(ALL)}"
    )
    parser.add_argument("--peers", action="store_true", help="also install and measure other servers")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where the report goes")
    return parser.parse_args()


def check(results: Results) -> int:
    """Print each bound that is exceeded, and return the exit status. A row that was not measured exceeds no bound."""
    broken = list_broken(results)
    for line in broken:
        _say(f"Broken: {line}")
    return 1 if broken else 0


def _measure(results: Results, size: Size, folder: Path, peers: Sequence[Peer]) -> None:
    with running_arena(folder, "requests") as arena:
        _say_what(f"requests: rounds of {size.seconds} s, {size.rounds} of each")
        ours, theirs = _measure_requests(arena, size, peers)
        results.series |= ours
        if theirs:
            machine = msgspec.structs.replace(results.machine, versions=find_versions())
            results.peers = Peers(machine, theirs, {name: ours[name] for name in COMPARED})
        _say_what("lookups of the gateway's library")
        results.lookups = measure_lookups(arena, size.rounds)
        _say_what("logins")
        rounds = 1 if size.many is None else size.rounds
        results.series |= measure_logins(arena, rounds, size.seconds)
        if size.many is not None:
            _say_what("two workers")
            results.series |= measure_workers(arena, size.rounds, size.seconds)
    with running_arena(folder, "memory", "--appendonly", "no") as arena:
        _say_what(f"memory: {size.sessions} sessions, rotations, a busy session, a worker")
        results.bytes_per_session = measure_session_bytes(arena, size.sessions)
        results.growth_per_rotation = measure_growth(arena)
        results.busy_ratio = measure_busy_session(arena)
        results.worker_mib = measure_worker(arena, size.seconds)
    if size.many is not None:
        _say_what(f"{size.many} sessions")
        with running_arena(folder, "few") as few, running_arena(folder, "many") as many:
            results.series |= measure_many_sessions(few, many, size.many, size.rounds)


def _measure_requests(arena: Arena, size: Size, peers: Sequence[Peer]) -> tuple[Series, Series]:
    """Floors and ours, and apart from them what was measured of the peers; all in the same turns."""
    with ExitStack() as running:
        targets = [running.enter_context(running_floor(name, arena.deployment.redis)) for name in APPLICATIONS]
        asking = running.enter_context(arena.running())
        remembering = running.enter_context(arena.running(TOKEN_SERVICE_VERIFY_CACHE="on"))
        logging = running.enter_context(arena.running(LOG_LEVEL="info"))
        targets += make_targets(arena, asking, remembering, logging)
        others = [target for peer in peers for target in running.enter_context(running_peer(peer, arena))]
        series = measure_in_turns([*targets, *others], size.rounds, size.seconds, warm=size.many is not None)
        return (
            {target.name: series[target.name] for target in targets},
            {target.name: series[target.name] for target in others},
        )


def _say_what(line: str) -> None:
    sys.stderr.write(f"scripts/bench: {line}\n")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
