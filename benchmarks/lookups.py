"""What a bearer lookup costs: in a gateway's own memory, from Redis, and by a request to the service.

All of a table is measured in turns within one run, and the ratios are what counts: machines differ, and one that others
share does so from minute to minute. Servers run on the first core, Redis and the load on the second.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import redis.asyncio as redis

from service.gateway import BearerLookup
from service.store.redis_url import parse_redis_url
from service.store.wire import open_wire
from tests.cast import access_key_of
from tests.faults.stage import Stage, parts_on, start_sessions
from tests.servers import CHECKOUT, free_port, running_service, stop, wait_until

SERVER_CORE, LOAD_CORE = 0, 1
CONNECTIONS = 64
TICK = os.sysconf("SC_CLK_TCK")
VERIFY, INTROSPECT = "/oauth2/v1/verify", "/oauth2/v1/introspect"


@dataclass
class Target:
    """One address under load; `pid` is the process whose work is counted, with those that it started."""

    name: str
    url: str
    pid: int
    wrk: list[str] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)

    def measure(self, seconds: int) -> None:
        before = cpu_seconds(self.pid)
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", *self.wrk, self.url]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "Non-2xx" not in said, said
        assert "Socket errors" not in said, said
        requests = int(re.findall(r"(\d+) requests in", said)[0])
        self.rates.append(float(re.findall(r"Requests/sec:\s+([\d.]+)", said)[0]))
        self.costs.append((cpu_seconds(self.pid) - before) / requests * 1e6)


def cpu_seconds(pid: int) -> float:
    """Of the process and of those that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK + sum(cpu_seconds(int(child)) for child in children)


@contextmanager
def _on_core(core: int) -> Iterator[None]:
    """What is started inside stays there."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core % len(everywhere)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)


async def _start_session(stage: Stage) -> str:
    async with parts_on(stage) as parts:
        ((token, _),) = await start_sessions(parts, "carol@example.com", 1)
    return token


def measure_memory(token: str, stage: Stage, rounds: int) -> None:
    """Calls that follow one another, as an API makes one for each of its requests."""
    digests = {hashlib.sha256(token.encode()).digest(): token}

    async def run() -> None:
        bearer = BearerLookup(stage.redis.url)
        assert await bearer.lookup(token)
        bare, ours = [], []
        for _ in range(rounds):
            started = time.perf_counter()
            for _ in range(100_000):
                digests.get(hashlib.sha256(token.encode()).digest())
            bare.append(time.perf_counter() - started)
            started = time.perf_counter()
            for _ in range(100_000):
                await bearer.lookup(token)
            ours.append(time.perf_counter() - started)
            await asyncio.sleep(0)
        await bearer.close()
        _tell("from memory: a SHA-256 and a dict", 1e5 / statistics.median(bare), 1.0)
        _tell("from memory: lookup", 1e5 / statistics.median(ours), statistics.median(bare) / statistics.median(ours))

    asyncio.run(run())


def measure_reads(token: str, stage: Stage, rounds: int) -> None:
    """One at a time, and many under way; a GET over the same kind of connection, and by the client library."""
    key = access_key_of(token)

    async def run() -> None:
        bearer = BearerLookup(stage.redis.url, memory=False)
        url = parse_redis_url(stage.redis.url)
        wire = await open_wire(url, url.nodes[0], "benchmark", lambda _: None, lambda: None)
        library = redis.Redis.from_url(stage.redis.url)
        assert await bearer.lookup(token)
        for many in (1, CONNECTIONS):
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "GET": lambda: wire.call("GET", key),
                "lookup": lambda: bearer.lookup(token),
                "redis-py GET": lambda: library.get(key),
            }
            seconds: dict[str, list[float]] = {name: [] for name in calls}
            for _ in range(rounds):
                for name, call in calls.items():
                    seconds[name].append(await _time(call, many))
            middle = {name: statistics.median(values) for name, values in seconds.items()}
            for name, each in middle.items():
                _tell(f"from Redis, {many} at once: {name}", 1 / each, middle["GET"] / each)
        wire.close("measured")
        await library.aclose()
        await bearer.close()

    asyncio.run(run())


async def _time(call: Callable[[], Awaitable[object]], many: int) -> float:
    """Seconds for each of some thousand calls, so many of them under way."""
    calls = 8000

    async def go_on() -> None:
        for _ in range(calls // many):
            await call()

    started = time.perf_counter()
    await asyncio.gather(*(go_on() for _ in range(many)))
    return (time.perf_counter() - started) / calls


def measure_requests(token: str, stage: Stage, folder: Path, rounds: int, seconds: int) -> None:
    with ExitStack() as running:
        with _on_core(SERVER_CORE):
            floor = running.enter_context(_running_floor(stage, access_key_of(token)))
            asking = running.enter_context(running_service(folder, stage.environment()))
            remembering = running.enter_context(
                running_service(folder, stage.environment(TOKEN_SERVICE_VERIFY_CACHE="on"))
            )
        bearer = ["-H", f"Authorization: Bearer {token}"]
        form = folder / "introspect.lua"
        form.write_text(
            'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/x-www-form-urlencoded"\n'
            f'wrk.body = "client_id=gateway&client_secret=gateway-secret&token={token}"\n'
        )
        targets = [
            floor,
            Target("verify, Redis asked", asking.url + VERIFY, asking.process.pid, bearer),
            Target("verify, from memory", remembering.url + VERIFY, remembering.process.pid, bearer),
            Target("introspect, Redis asked", asking.url + INTROSPECT, asking.process.pid, ["-s", str(form)]),
            Target("introspect, from memory", remembering.url + INTROSPECT, remembering.process.pid, ["-s", str(form)]),
        ]
        _check_answers(token, asking.url, remembering.url)
        with _on_core(LOAD_CORE):
            for target in targets:
                target.measure(1)
                target.rates.clear()
                target.costs.clear()
            for _ in range(rounds):
                for target in targets:
                    target.measure(seconds)
    for target in targets:
        rate, cost = statistics.median(target.rates), statistics.median(target.costs)
        _tell(target.name, rate, rate / statistics.median(floor.rates), cost, statistics.median(floor.costs) / cost)


def _check_answers(token: str, *urls: str) -> None:
    form = {"client_id": "gateway", "client_secret": "gateway-secret", "token": token}
    for url in urls:
        verified = httpx2.get(url + VERIFY, headers={"Authorization": f"Bearer {token}"})
        assert (verified.status_code, verified.headers["X-Auth-User"]) == (200, "carol@example.com")
        assert httpx2.post(url + INTROSPECT, data=form).json()["active"] is True


@contextmanager
def _running_floor(stage: Stage, key: str) -> Iterator[Target]:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "benchmarks.floor:app", "--port", str(port), "--no-access-log"]
    environment = os.environ | {"REDIS_URL": stage.redis.url, "BENCH_KEY": key}
    process = subprocess.Popen([*command, "--log-level", "warning"], cwd=CHECKOUT, env=environment)
    url = f"http://127.0.0.1:{port}/"
    try:
        wait_until(lambda: _answers(url), "the floor")
        yield Target("Starlette and one GET of redis-py", url, process.pid)
    finally:
        stop(process)


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url).status_code == 200
    except httpx2.TransportError:
        return False


def _tell(name: str, rate: float, ratio: float, cost: float | None = None, cost_ratio: float | None = None) -> None:
    more = "" if cost is None else f"{cost:11.1f} us   x{cost_ratio:.2f}"
    sys.stdout.write(f"{name:36}  {rate:12,.0f}   x{ratio:<13.2f}{more}\n")
    sys.stdout.flush()


def main(quick: bool) -> None:
    rounds, seconds = (3, 1) if quick else (9, 3)
    sys.stdout.write(f"{'':36}  {'a second':>12}   {'to the first':14}{'of a server':>14}   to the first\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _on_core(LOAD_CORE):
            stage = Stage(folder)
        try:
            token = asyncio.run(_start_session(stage))
            with _on_core(SERVER_CORE):
                measure_memory(token, stage, rounds)
                measure_reads(token, stage, rounds)
            measure_requests(token, stage, folder, rounds, seconds)
        finally:
            stage.store.close()
            stop(stage.redis.process)


if __name__ == "__main__":
    if not set(sys.argv[1:]) <= {"--quick"}:
        sys.exit("usage: scripts/bench [--quick]")
    main("--quick" in sys.argv[1:])
