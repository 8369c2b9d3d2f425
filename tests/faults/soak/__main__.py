"""`scripts/soak`: faults and load for as long as is asked for, a line of progress, and a report at the end.

How soon answers and service come is judged here alone, not in the tests: the machine should have nothing else to do.
"""

import argparse
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from itertools import count, islice
from pathlib import Path
from typing import Final

from service.config.parsers import parse_durability
from service.redis_client.url import MEMORY
from tests.faults.soak.checker import Promise
from tests.faults.soak.clock import read_clock
from tests.faults.soak.replicated import running_three_and_three, running_watched_servers
from tests.faults.soak.run import Soak
from tests.faults.soak.servers import Servers, running_single_server
from tests.invariants.exploration import explore_for

DONE, VIOLATED, WRONG_USAGE = 0, 1, 2
GRACE_SECONDS: Final = 20
LATEST_SECONDS: Final = 2.5
BACK_SECONDS: Final = 3.0
FAULTS_OF_A_ROUND: Final = 6
TOPOLOGIES: Final[Mapping[str, Callable[..., AbstractContextManager[Servers]]]] = {
    "single": running_single_server,
    "sentinel": running_watched_servers,
    "cluster": running_three_and_three,
}


def main() -> int:
    options = parse_arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    if options.model:
        return DONE if explore_for(options.minutes, options.seed, tell) else VIOLATED
    promise = Promise(
        durability=options.durability.level,
        grace_seconds=GRACE_SECONDS,
        latest_seconds=LATEST_SECONDS + options.slack,
        back_seconds=BACK_SECONDS + options.slack,
    )
    variables = {"TOKEN_SERVICE_DURABILITY": str(options.durability), "TOKEN_SERVICE_REFRESH_GRACE": str(GRACE_SECONDS)}
    if options.topology == "single" and options.durability.level == "replica":
        tell("a single server has no replicas: add --topology sentinel or cluster")
        return WRONG_USAGE
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    title = f"seed {options.seed}, {options.topology}, durability {options.durability}"
    tell(f"{title}, logs in {folder}")
    with TOPOLOGIES[options.topology](folder, variables, min_replicas=options.durability.min_replicas) as servers:
        unknown = set(options.faults) - set(servers.faults)
        if unknown:
            tell(f"no such fault here: {', '.join(sorted(unknown))}; there are {', '.join(servers.faults)}")
            return WRONG_USAGE
        faults = options.faults or list(servers.faults)
        soak = Soak(servers, promise, options.seed, faults, rate=options.rate, folder=folder)
        run(soak, options.minutes, title)
    if soak.report.violations:
        tell(f"the logs, and what was asked and answered in those rounds, stay in {folder}")
        return VIOLATED
    shutil.rmtree(folder)
    return DONE


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long, at least (10)")
    parser.add_argument("--model", action="store_true", help="compare random histories of the scripts with the model")
    parser.add_argument("--topology", choices=TOPOLOGIES, default="single", help="what Redis is (single)")
    parser.add_argument(
        "--durability",
        type=parse_durability,
        default=MEMORY,
        metavar="LEVEL",
        help="TOKEN_SERVICE_DURABILITY, such as replica:2 (memory)",
    )
    parser.add_argument("--seed", default=secrets.token_hex(4), help="repeats the choices of an earlier run")
    parser.add_argument("--faults", type=split_names, default=[], metavar="NAME,…", help="only these (all)")
    parser.add_argument("--rate", type=float, default=40, help="requests a second, at most (40)")
    parser.add_argument("--slack", type=float, default=0, help="so many seconds later may answers come, and service")
    return parser.parse_args()


def split_names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def run(soak: Soak, minutes: float, title: str) -> None:
    """Run rounds until the time is over. The report comes last, also after Ctrl-C or a failure of the soak itself.

    A round that does not finish has no part in the report.
    """
    started, faults, done = read_clock(), soak.shuffled_faults(), 0

    def note_fault() -> None:
        nonlocal done
        done += 1
        minutes_passed, violations = (read_clock() - started) / 60, len(soak.report.violations)
        requests = soak.report.requests + soak.requests_of_round
        tell(f"{minutes_passed:6.1f} min  {requests} requests  {done} faults  {violations} violations", is_last=False)

    try:
        for number in count():
            verdict = soak.run_round(number, list(islice(faults, FAULTS_OF_A_ROUND)), note_fault)
            for violation in verdict.violations:
                tell(f"round {number}: {violation}")
            if read_clock() - started >= minutes * 60:
                break
    except KeyboardInterrupt:
        tell("ended by hand")
    finally:
        tell(f"{title}, {(read_clock() - started) / 60:.1f} minutes")
        for line in soak.report.lines():
            tell(line)


def tell(line: str, *, is_last: bool = True) -> None:
    """Print a line. On a terminal the next line overwrites it unless it is the last one."""
    watched = sys.stdout.isatty()
    start, end = ("\r\x1b[K", "\n" if is_last else "") if watched else ("", "\n")
    sys.stdout.write(f"{start}{line}{end}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
