"""The fixtures of the gateway tests: an API's own lookup on the Redis of the service."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from service.gateway import BearerLookup
from service.protocol.user import identify_user
from service.worker import Worker
from tests.conftest import AnyRedis, Clock
from tests.faults.deployment import start_sessions
from tests.support.clients_and_users import ALICE, PHONE_APP, tokens_of
from tests.support.servers import free_port

CAROL = identify_user("main", "carol@example.com")


@pytest.fixture
async def tokens(worker: Worker) -> list[str]:
    """Live access tokens of one user, each of a session of its own."""
    return [access_token for access_token, _ in await start_sessions(worker, CAROL.username, 20)]


@pytest.fixture
async def lookup(redis_server: AnyRedis, clock: Clock) -> AsyncIterator[BearerLookup]:
    async with BearerLookup(redis_server.url, clock_offset_ms=lambda: clock.offset_ms) as lookup:
        yield lookup


@pytest.fixture
async def lookup_without_redis() -> AsyncIterator[BearerLookup]:
    """A lookup whose Redis cannot be reached."""
    async with BearerLookup(f"redis://127.0.0.1:{free_port()}/0") as lookup:
        yield lookup


async def log_in(http: httpx2.AsyncClient, scope: str = "realm:main role:enduser") -> str:
    """An access token of Alice."""
    return tokens_of(await PHONE_APP.log_in(http, ALICE, scope))["access_token"]
