"""Two versions that replace each other under load: the number of answers, and of wrong ones.

The load and its checker are those of `scripts/soak`. It sends its requests to two instances without a proxy,
which would send a request to the other instance after a refused connection.
"""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from benchmarks.results import Rows
from benchmarks.testbed import Testbed
from tests.faults.soak.checker import Promise
from tests.faults.soak.clock import read_clock
from tests.faults.soak.history import Fault
from tests.faults.soak.run import Report, Soak
from tests.faults.soak.servers import Inject, Servers
from tests.support.servers import CHECKOUT

ANSWERED, REFUSED = "answered", "503 with Retry-After"
STOPPED, LOST = "connection refused by a stopped instance", "lost"
WRONG = "wrong answers while versions replace each other"
RULES = {"I7": "a revoked token was accepted", "I10": "a valid token was refused"}
OTHER_RULE = "another rule of the checker was broken"
REPLACED = "replaced instances"
TURNS = 3
"""The versions of an instance in a round after the one that it began with: old to new, to old, and to new."""
GRACE_SECONDS = 20


class Versions(Servers):
    """Two instances of the version in the folder `earlier`. Each replacement is by the other version."""

    def __init__(self, folder: Path, redis_url: str, earlier: Path) -> None:
        super().__init__(folder, (redis_url, redis_url), {"TOKEN_SERVICE_REFRESH_GRACE": str(GRACE_SECONDS)})
        self._folders = {CHECKOUT: earlier, earlier: CHECKOUT}
        for instance in self.instances:
            instance.version = earlier
        self._turns = itertools.cycle(self.instances)

    @property
    def faults(self) -> Mapping[str, Inject]:
        return {REPLACED: self.replace}

    def replace(self, _: random.Random) -> Fault:
        """Replace the instance that was not replaced last."""
        instance, started = next(self._turns), read_clock()
        instance.replace(self._folders[instance.version])
        return Fault(name=REPLACED, started=started, ended=read_clock(), instance=instance.number)


def measure_upgrade(testbed: Testbed, rounds: int, *, upgrade_from: str) -> Rows:
    """Return numbers of requests and of violations. The instances have all cores."""
    earlier = testbed.folder / "earlier"
    earlier.mkdir()
    files = subprocess.run(["git", "archive", upgrade_from], cwd=CHECKOUT, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", earlier], input=files, check=True)
    servers = Versions(testbed.folder, testbed.deployment.redis.url, earlier)
    soak = Soak(servers, Promise(grace_seconds=GRACE_SECONDS), upgrade_from, (REPLACED,))
    with servers.running_instances():
        for number in range(rounds):
            soak.run_round(number, [REPLACED] * TURNS * len(servers.instances))
    for line in soak.report.lines():
        sys.stderr.write(f"scripts/bench: {line}\n")
    return count_answers(soak.report)


def count_answers(report: Report) -> Rows:
    """Return the numbers of requests by their outcome and kind, and those of violations by their rule."""
    rows: dict[str, Counter[str]] = {name: Counter(all=0) for name in (ANSWERED, REFUSED, STOPPED, LOST)}
    for (kind, status), number in report.calls.items():
        row = {"503": REFUSED, "ConnectError": STOPPED}.get(status, ANSWERED if status.isdigit() else LOST)
        rows[row].update({kind: number, "all": number})
    rules = Counter(RULES.get(violation.rule, OTHER_RULE) for violation in report.violations)
    rows[WRONG] = Counter({text: rules[text] for text in (*RULES.values(), OTHER_RULE)})
    return {name: {part: [float(number)] for part, number in row.items()} for name, row in rows.items()}
