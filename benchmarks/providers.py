"""Logins of realm main during logins at a provider that hangs, in turns with the same logins alone."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import yaml

from benchmarks.arena import Arena
from benchmarks.load import LoadFailed
from benchmarks.processes import LOAD_CORE, on_core
from benchmarks.results import WHOLE, Rows
from tests.conftest import SEED
from tests.faults.deployment import http_client_for
from tests.realms.login_steps import log_in_with_password
from tests.support.clients_and_users import ALICE, PHONE_APP
from tests.support.fake_provider import PASSWORD, TOKEN, USERNAME, FakeProvider, Hang, realm_of, running_provider
from tests.support.waiting import until, until_status

BESIDE = "logins of realm main beside an organisation that hangs / alone"
HAMMERS = 40
LOGINS = 200


def measure_providers(arena: Arena, rounds: int) -> Rows:
    with on_core(LOAD_CORE):
        return {BESIDE: {WHOLE: asyncio.run(_measure(arena, rounds))}}


async def _measure(arena: Arena, rounds: int) -> list[float]:
    """Each round begins with an open gate, sees twenty calls hang, and then the gate closed."""
    ratios = []
    async with running_provider() as provider:
        seed = _write_seed(arena.folder / "organisation.yaml", provider)
        with arena.running(TOKEN_SERVICE_SEED_FILE=str(seed)) as service:
            async with http_client_for(service) as main, http_client_for(service) as cep:
                await _take_median(main)
                for _ in range(rounds):
                    alone = await _take_median(main)
                    provider.answer(TOKEN, None)
                    await until_status(lambda: log_in_with_password(cep, USERNAME, PASSWORD), 200)
                    provider.answer(TOKEN, Hang())
                    async with _hammering(cep, provider):
                        ratios.append(await _take_median(main) / alone)
    return ratios


def _write_seed(file: Path, provider: FakeProvider) -> Path:
    file.write_text(yaml.safe_dump(yaml.safe_load(SEED.read_text()) | {"realms": {"cep": realm_of(provider)}}))
    return file


async def _take_median(http: httpx2.AsyncClient) -> float:
    """Return the seconds of a login, the median of many that follow one another."""
    took = []
    for _ in range(LOGINS):
        started = time.perf_counter()
        if (response := await PHONE_APP.log_in(http, ALICE)).status_code != 200:
            raise LoadFailed(f"a login of realm main is answered {response.status_code}")
        took.append(time.perf_counter() - started)
    return statistics.median(took)


@asynccontextmanager
async def _hammering(http: httpx2.AsyncClient, provider: FakeProvider) -> AsyncIterator[None]:
    """Let callers log in at the provider again and again, each after the pause that Retry-After names."""

    async def hammer(number: int) -> None:
        while True:
            response = await log_in_with_password(http, f"user {number}", PASSWORD)
            if response.status_code != 503:
                raise LoadFailed(f"a login at an organisation that hangs is answered {response.status_code}")
            await asyncio.sleep(int(response.headers["retry-after"]))

    hammers = [asyncio.create_task(hammer(number)) for number in range(HAMMERS)]
    await until(lambda: provider.waiting > 0)
    try:
        yield
    finally:
        for task in hammers:
            task.cancel()
        ends = await asyncio.gather(*hammers, return_exceptions=True)
        await provider.await_idle()
    for end in ends:
        if isinstance(end, LoadFailed):
            raise end
