"""Two instances of the service on one Redis, many concurrent requests, and checks of what is live afterwards."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

from service.crypto.keyring import Keyring
from service.store.keys import family_key
from service.store.records import parse_family
from tests.conftest import SECRET_KEY, AnyRedis, environment_of
from tests.support.clients_and_users import OAuthClient, access_key_of
from tests.support.loop_time import PACE
from tests.support.servers import running_service
from tests.support.waiting import MAX_WAIT_SECONDS, until_other_status

CONCURRENT_REQUESTS = 64
PLENTY = "1000000/minute"

KEYRING = Keyring((SECRET_KEY.encode(),))


class RoundRobinTransport(httpx2.AsyncHTTPTransport):
    """A transport that sends each request to the next of the instances, over kept connections."""

    def __init__(self, ports: Iterable[int]) -> None:
        # Idle connections end after a second, before the instances close them. A request at that moment would fail.
        limits = httpx2.Limits(max_connections=400, max_keepalive_connections=8, keepalive_expiry=PACE)
        super().__init__(verify=False, limits=limits)
        self._ports = cycle(ports)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(port=next(self._ports))
        return await super().handle_async_request(request)


@dataclass(frozen=True)
class FamilyRecord:
    """The parts of a family's record by which the tests judge a race."""

    head: int
    access_tokens: int


@dataclass(frozen=True)
class InstancePair:
    """The ports of the two instances, the URL of their Redis, and a plain client of it."""

    ports: tuple[int, ...]
    url: str
    store: redis.Redis

    def http(self) -> httpx2.AsyncClient:
        transport = RoundRobinTransport(self.ports)
        return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=MAX_WAIT_SECONDS)

    def clear(self) -> None:
        """Delete all keys but those of the registry, which have no TTL."""
        for key in self.store.scan_iter(count=1000):
            if self.store.ttl(key) >= 0:
                self.store.delete(key)

    def knows_access_token(self, access_token: str) -> bool:
        return self.store.exists(access_key_of(access_token)) == 1

    def find_family(self, refresh_token: str) -> FamilyRecord | None:
        name = KEYRING.parse_refresh_token(refresh_token)
        assert name is not None
        record: Any = self.store.get(family_key(name.shard, name.family_digest))
        if record is None:
            return None
        family = parse_family(record.encode())
        return FamilyRecord(family.head, len(family.access_digests))


@contextmanager
def running_instances(folder: Path, server: AnyRedis, **variables: str) -> Iterator[InstancePair]:
    """Run two instances on a Redis that is emptied first.

    `variables` are environment variables of both. Time passes slowly in the instances.
    """
    # Browsers reach both at one address, from which the names of their cookies are derived.
    environment = environment_of(server, TOKEN_SERVICE_WEB_URL="http://127.0.0.1", **variables)
    with server.connect() as store:
        store.flushall()
        # Their shutdown would be as slow as their time, and no test of races is about it.
        run = partial(running_service, folder, environment, module="tests.races.slow_service", end=signal.SIGKILL)
        with run() as first, run() as second:
            yield InstancePair((first.port, second.port), server.url, store)


def places(*usual: int, more: tuple[int, ...]) -> list[object]:
    """Return positions among concurrent requests, for `parametrize`. `more` are tried in long runs only."""
    return [*usual, *(pytest.param(place, marks=pytest.mark.long) for place in more)]


async def all_at_once(requests: Sequence[Awaitable[httpx2.Response]]) -> list[httpx2.Response]:
    return list(await asyncio.gather(*requests))


async def open_connections(http: httpx2.AsyncClient, count: int = CONCURRENT_REQUESTS) -> None:
    """Open connections, so that later requests race each other without handshakes."""
    await all_at_once([http.get("/healthz") for _ in range(count)])


async def until_available(ask: Callable[[], Awaitable[httpx2.Response]]) -> httpx2.Response:
    """Repeat the request after a 503, which a request gets that waits too long on a slow machine."""
    return await until_other_status(ask, 503)


async def is_live(instances: InstancePair, http: httpx2.AsyncClient, client: OAuthClient, body: dict[str, str]) -> bool:
    """Return True if a token of the response can still be used."""
    if instances.knows_access_token(body["access_token"]):
        return True
    answer = await client.refresh(http, body["refresh_token"])
    assert answer.status_code in (200, 400), answer.text
    return answer.status_code == 200
