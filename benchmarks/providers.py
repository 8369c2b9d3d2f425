"""Logins of realm main while logins at a provider hang, compared with the same logins alone. Both take turns."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import yaml

from benchmarks.load import LoadFailed
from benchmarks.processes import LOAD_CORE, on_core
from benchmarks.results import WHOLE, Rows
from benchmarks.testbed import Testbed
from tests.conftest import SEED
from tests.faults.deployment import http_client_for
from tests.realms.login_steps import log_in_with_password
from tests.support.clients_and_users import ALICE, PHONE_APP
from tests.support.fake_provider import PASSWORD, TOKEN, USERNAME, FakeProvider, Hang, realm_of, running_provider
from tests.support.waiting import until, until_status

SLOWDOWN = "logins of realm main beside an organisation that hangs / alone"
CONCURRENT_LOGINS = 40
LOGINS = 200


def measure_providers(testbed: Testbed, rounds: int) -> Rows:
    with on_core(LOAD_CORE):
        return {SLOWDOWN: {WHOLE: asyncio.run(_measure(testbed, rounds))}}


async def _measure(testbed: Testbed, rounds: int) -> list[float]:
    """Return the ratio of each round.

    A round begins with a closed circuit breaker. Twenty calls hang, and then the circuit breaker opens.
    """
    ratios = []
    async with running_provider() as provider:
        seed = _write_seed(testbed.folder / "organisation.yaml", provider)
        with testbed.running(TOKEN_SERVICE_SEED_FILE=str(seed)) as service:
            async with http_client_for(service) as main_http, http_client_for(service) as provider_http:
                await _measure_median_login(main_http)
                for _ in range(rounds):
                    alone = await _measure_median_login(main_http)
                    provider.answer(TOKEN, None)
                    await until_status(lambda: log_in_with_password(provider_http, USERNAME, PASSWORD), 200)
                    provider.answer(TOKEN, Hang())
                    async with _logging_in_at_provider(provider_http, provider):
                        ratios.append(await _measure_median_login(main_http) / alone)
    return ratios


def _write_seed(file: Path, provider: FakeProvider) -> Path:
    file.write_text(yaml.safe_dump(yaml.safe_load(SEED.read_text()) | {"realms": {"cep": realm_of(provider)}}))
    return file


async def _measure_median_login(http: httpx2.AsyncClient) -> float:
    """Return the median time of consecutive logins in seconds."""
    seconds = []
    for _ in range(LOGINS):
        started = time.perf_counter()
        if (response := await PHONE_APP.log_in(http, ALICE)).status_code != 200:
            raise LoadFailed(f"a login of realm main is answered {response.status_code}")
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


@asynccontextmanager
async def _logging_in_at_provider(http: httpx2.AsyncClient, provider: FakeProvider) -> AsyncIterator[None]:
    """Send logins for the provider while the block runs. Each is repeated after the time in Retry-After."""

    async def log_in_repeatedly(number: int) -> None:
        while True:
            response = await log_in_with_password(http, f"user {number}", PASSWORD)
            if response.status_code != 503:
                raise LoadFailed(f"a login at an organisation that hangs is answered {response.status_code}")
            await asyncio.sleep(int(response.headers["retry-after"]))

    tasks = [asyncio.create_task(log_in_repeatedly(number)) for number in range(CONCURRENT_LOGINS)]
    await until(lambda: provider.waiting > 0)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await provider.await_idle()
    for result in results:
        if isinstance(result, LoadFailed):
            raise result
