"""`user import` of many users whose hashes are given, and the latency of refreshes beside it.

The console runs on the core of the service. The time counts from the start of its process to its end.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.load import LoadFailed
from benchmarks.logins import PACED_CONNECTIONS, PAUSE_MS, QUIET
from benchmarks.operations import make_refresh
from benchmarks.processes import LOAD_CORE, SERVER_CORE, on_core
from benchmarks.results import WHOLE, Rows
from benchmarks.testbed import Testbed
from tests.cluster.nodes import running_cluster
from tests.conftest import environment_of
from tests.support.servers import CHECKOUT
from tests.support.waiting import PAUSE_SECONDS

IMPORTED = "user import, 10,000 users with hashes"
UNCHANGED = "user import, 10,000 users who are imported already"
P99 = "refresh, p99 beside a user import / in quiet"
USER_BYTES = "memory of Redis for an imported user"
CONSOLE_MIB = "memory of the console at a user import, at most"
ONE_SERVER, CLUSTER = "one server", "cluster of three masters"
USERS = 200_000
P99_SECONDS = 8
LINE = {"roles": ["enduser"], "name": "Example User Name"}
HASH = "$argon2id$v=19$m=19456,t=2,p=1${salt}$l56vI+cDWZR4UTHfae5f+kPRrKRLhCg32rRGuXGxV+k"
"""No hash of a password: only its form is right."""


class Import(NamedTuple):
    seconds_per_10000: float
    console_mib: float


def measure_imports(testbed: Testbed, rounds: int) -> Rows:
    rows: Rows = {name: {} for name in (IMPORTED, UNCHANGED, P99, USER_BYTES, CONSOLE_MIB)}

    def note(row: str, part: str, value: float) -> None:
        rows[row].setdefault(part, []).append(value)

    store = testbed.deployment.store
    with testbed.running() as service:
        refresh = make_refresh(QUIET, testbed, service, connections=PACED_CONNECTIONS, pause_ms=PAUSE_MS)
        for number in range(rounds):
            file = testbed.write_lines(make_lines(f"alone{number}"))
            before = store.info("memory")["used_memory"]
            imported = run_import(file, testbed.deployment.environment())
            note(USER_BYTES, ONE_SERVER, (store.info("memory")["used_memory"] - before) / USERS)
            note(IMPORTED, ONE_SERVER, imported.seconds_per_10000)
            note(CONSOLE_MIB, f"{USERS:,} users", imported.console_mib)
            note(UNCHANGED, ONE_SERVER, run_import(file, testbed.deployment.environment()).seconds_per_10000)
            quiet = refresh.measure(P99_SECONDS)
            with ThreadPoolExecutor(1) as other:
                lines = testbed.write_lines(make_lines(f"beside{number}"))
                importing = other.submit(run_import, lines, testbed.deployment.environment())
                time.sleep(1)
                beside = refresh.measure(P99_SECONDS)
                if importing.done():
                    raise LoadFailed("the import ended before the refreshes beside it")
                importing.result()
            note(P99, WHOLE, beside.p99_ms / quiet.p99_ms)
    for number in range(rounds):
        file = testbed.write_lines(make_lines(f"cluster{number}"))
        note(IMPORTED, CLUSTER, _import_into_cluster(file).seconds_per_10000)
    return rows


def make_lines(prefix: str) -> Iterator[str]:
    """Yield USERS lines, each with a hash of its own, which costs no hashing."""
    for number in range(USERS):
        salt = b64encode(number.to_bytes(16)).decode().rstrip("=")
        yield json.dumps({"username": f"{prefix}-{number}@example.com", "password_hash": HASH.format(salt=salt)} | LINE)


def run_import(file: str, environment: dict[str, str]) -> Import:
    command = [sys.executable, "-m", "service.admin", "user", "import", file, "--yes"]
    began = time.perf_counter()
    with on_core(SERVER_CORE):
        process = subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    peak_kib = 0
    while process.poll() is None:
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
        peak_kib = int(found[1]) if found else peak_kib  # a process that has ended has no memory
        time.sleep(PAUSE_SECONDS)
    if process.returncode:
        raise LoadFailed(f"the import failed: {process.communicate()[1]!r}")
    return Import((time.perf_counter() - began) * 10_000 / USERS, peak_kib / 1024)


def _import_into_cluster(file: str) -> Import:
    with tempfile.TemporaryDirectory() as folder, on_core(LOAD_CORE), running_cluster(Path(folder)) as cluster:
        return run_import(file, environment_of(cluster))
