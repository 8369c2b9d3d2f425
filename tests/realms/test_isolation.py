"""A provider that hangs occupies bounded resources, and none of realm main."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from service.realms.provider import circuit_breaker, http_client
from tests.realms.login_steps import RegisterRealm, log_in_with_password
from tests.support.clients_and_users import ALICE, PHONE_APP, assert_error
from tests.support.fake_provider import PASSWORD, TOKEN, USERNAME, FakeProvider, Hang
from tests.support.loop_time import LoopTime
from tests.support.waiting import MAX_WAIT_SECONDS, until

pytestmark = pytest.mark.clause("decided-external-isolated", "decided-external-limits", "decided-external-realm-down")

LOGINS = 60
SLOW_HOST = "slow-names.example"


async def log_in_to_cep(http: httpx2.AsyncClient, username: str = USERNAME) -> httpx2.Response:
    return await log_in_with_password(http, username, PASSWORD)


def start_logins(http: httpx2.AsyncClient, count: int = LOGINS) -> list[asyncio.Task[httpx2.Response]]:
    """Start so many logins at once. Each has its own user, since the throttle would delay one user."""
    return [asyncio.create_task(log_in_to_cep(http, f"user {number}")) for number in range(count)]


async def assert_all_unavailable(logins: list[asyncio.Task[httpx2.Response]]) -> None:
    """Check that each login gets the error of an outage."""
    for response in await asyncio.gather(*logins):
        assert_error(response, 503, "temporarily_unavailable")
        assert response.headers["retry-after"] == "1"


async def until_done(logins: list[asyncio.Task[httpx2.Response]], count: int) -> None:
    """Wait until exactly so many of the logins are answered."""
    await until(lambda: sum(login.done() for login in logins) == count)


async def test_hanging_provider_delays_no_login_of_main(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None, held_time: LoopTime
) -> None:
    assert (await log_in_to_cep(http)).status_code == 200
    provider.answer(TOKEN, Hang())
    before = len(provider.calls(TOKEN))

    logins = start_logins(http)
    await until(lambda: provider.waiting == circuit_breaker.CALLS)
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
    await held_time.advance_until_done(until_done(logins, LOGINS - circuit_breaker.CALLS))
    assert provider.waiting == circuit_breaker.CALLS
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
    await held_time.advance_until_done(assert_all_unavailable(logins))

    # Logins without a slot were refused before the hanging ones were given up.
    assert len(provider.calls(TOKEN)) - before == circuit_breaker.CALLS
    await provider.await_idle()


# Name resolution


class HangingNames:
    """Lookups of one host that hang until they are released. All other lookups work."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.waiting = 0
        self._look_up = socket.getaddrinfo
        self._lock = threading.Lock()

    def look_up(self, host: Any, *arguments: Any, **more: Any) -> Any:
        if host not in (SLOW_HOST, SLOW_HOST.encode()):
            return self._look_up(host, *arguments, **more)
        with self._lock:
            self.waiting += 1
        assert self.released.wait(MAX_WAIT_SECONDS)
        with self._lock:
            self.waiting -= 1
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingNames]:
    names = HangingNames()
    monkeypatch.setattr(socket, "getaddrinfo", names.look_up)
    yield names
    names.released.set()


async def test_hanging_name_server_blocks_no_other_lookup(
    http: httpx2.AsyncClient, register_realm: RegisterRealm, held_time: LoopTime, names: HangingNames
) -> None:
    """Connections to a Redis with a host name need the event loop's few threads."""
    named = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint")
    await register_realm(issuer=None, **{name: f"https://{SLOW_HOST}/{name}" for name in named})
    logins = start_logins(http, circuit_breaker.CALLS)
    await until(lambda: names.waiting == http_client.LOOKUPS)

    loop = asyncio.get_running_loop()
    assert await loop.getaddrinfo("localhost", 6379)
    assert await asyncio.gather(*(asyncio.to_thread(threading.get_ident) for _ in range(100)))
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
    await held_time.advance_until_done(assert_all_unavailable(logins))

    # The threads still hang. The callers that waited for one have given up.
    assert names.waiting == http_client.LOOKUPS
    names.released.set()
    await until(lambda: names.waiting == 0)
