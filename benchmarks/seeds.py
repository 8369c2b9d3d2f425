"""A seed file of 10,000 users: the time to apply it, the time to find it unchanged, and the memory of both."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator

import msgspec
import redis

from benchmarks.load import LoadFailed
from benchmarks.processes import SERVER_CORE, on_core
from benchmarks.results import WHOLE, Rows
from benchmarks.testbed import Testbed
from tests.conftest import SECRET_KEY
from tests.support.servers import CHECKOUT

USERS = 10_000
APPLIED = f"a seed file of {USERS:,} users is applied, processor time with that of Redis"
UNCHANGED = f"a seed file of {USERS:,} users is found unchanged, processor time"
GROWTH = f"a seed file of {USERS:,} users, memory of the process"

USER = """\
  - username: user{number}@example.com
    password_hash: $argon2id$v=19$m=19456,t=2,p=1${salt}${digest}
    roles: [enduser]
    name: User Number {number}
"""

LOADER = """
import asyncio, json, sys, time
from pathlib import Path
from service.app import Worker
from service.registry.seed_file.reader import load_seed
from service.config.settings import load_settings

def read_peak_kib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))

async def main(file, url, secret_key):
    worker = Worker(load_settings({"REDIS_URL": url, "TOKEN_SERVICE_SECRET_KEY": secret_key}))
    before = read_peak_kib()
    seconds, changed = [], []
    for _ in range(2):
        started = time.process_time()
        seed = load_seed(Path(file), 8)
        outcome = await worker.seeding.apply(seed)
        seconds.append(time.process_time() - started)
        changed.append(outcome.users.added)
    await worker.close()
    growth = read_peak_kib() - before
    print(json.dumps({"seconds": seconds, "added": changed, "growth_kib": growth}))

asyncio.run(main(*sys.argv[1:]))
"""


class LoaderOutput(msgspec.Struct):
    """The output of LOADER. Each pair holds the values of the first run and of the second."""

    seconds: tuple[float, float]
    added: tuple[int, int]
    growth_kib: int


def measure_seeds(testbed: Testbed, rounds: int) -> Rows:
    """Return processor seconds and MiB."""
    rows: Rows = {APPLIED: {WHOLE: []}, UNCHANGED: {WHOLE: []}, GROWTH: {WHOLE: []}}
    file = testbed.write_lines(_make_lines())
    for _ in range(rounds):
        for row, value in _measure_once(testbed, file).items():
            rows[row][WHOLE].append(value)
    return rows


def _measure_once(testbed: Testbed, file: str) -> dict[str, float]:
    store = testbed.deployment.store
    store.flushdb()
    before = _read_seconds(store)
    command = [sys.executable, "-c", LOADER, file, testbed.deployment.redis.url, SECRET_KEY]
    with on_core(SERVER_CORE):
        output = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True).stdout
    loaded = msgspec.json.decode(output.splitlines()[-1], type=LoaderOutput)
    if loaded.added != (USERS, 0):
        raise LoadFailed(f"of {USERS} users {loaded.added} were added")
    return {
        APPLIED: loaded.seconds[0] + _read_seconds(store) - before,
        UNCHANGED: loaded.seconds[1],
        GROWTH: loaded.growth_kib / 1024,
    }


def _make_lines() -> Iterator[str]:
    yield "users:"
    for number in range(USERS):
        salt, digest = (b64encode(number.to_bytes(size)).decode().rstrip("=") for size in (16, 32))
        yield USER.format(number=number, salt=salt, digest=digest).rstrip("\n")


def _read_seconds(store: redis.Redis) -> float:
    """Return the processor time of Redis since its start, in seconds."""
    taken = store.info("cpu")
    return float(taken["used_cpu_user"]) + float(taken["used_cpu_sys"])
