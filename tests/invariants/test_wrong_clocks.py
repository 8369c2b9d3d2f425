"""I9 between processes: instances ten minutes ahead and behind work like one with the right time."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import pytest

from tests.conftest import environment_of
from tests.support.browser import ISSUER, SESSIONS, Browser, Page, page_text
from tests.support.clients_and_users import (
    ALICE,
    AUDITOR,
    GATEWAY,
    PHONE_APP,
    PHONE_CALLBACK,
    REVOKE_ALL,
    VERIFY,
    WEB_SHOP,
    UserCredentials,
    bearer,
    tokens_of,
)
from tests.support.servers import CHECKOUT, RedisServer, ServiceProcess, running_service, start_redis, stop
from tests.support.waiting import MAX_WAIT_SECONDS

# Three services and a console; tests/invariants/test_one_clock.py is quick, and looks at the code as well.
pytestmark = pytest.mark.long

WRONG_CLOCK = CHECKOUT / "tests" / "invariants" / "wrong_clock"
AHEAD, BEHIND = 600, -600
LIMIT = 4
HOUR_SECONDS = 3_600
REFRESH_SECONDS = 2_592_000


def with_clock(wrong_by: int) -> dict[str, str]:
    """The environment of a Python whose clock is wrong by so many seconds."""
    return {"PYTHONPATH": f"{WRONG_CLOCK}{os.pathsep}{CHECKOUT}", "WRONG_BY_SECONDS": str(wrong_by)}


class InTurn(httpx2.AsyncBaseTransport):
    """A balancer: each request goes to the next instance."""

    def __init__(self, services: Sequence[ServiceProcess]) -> None:
        self._ports = itertools.cycle([service.port for service in services])
        self._transport = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(port=next(self._ports))
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        await self._transport.aclose()


@dataclass(frozen=True)
class Instances:
    redis: RedisServer
    right: ServiceProcess
    wrong: Sequence[ServiceProcess]

    @asynccontextmanager
    async def client(self, services: Sequence[ServiceProcess] | None = None) -> AsyncIterator[httpx2.AsyncClient]:
        """Return a client of these in turn, by default of the one ahead, the one behind, and the right one."""
        transport = InTurn(services or (*self.wrong, self.right))
        async with httpx2.AsyncClient(base_url=ISSUER, transport=transport, timeout=MAX_WAIT_SECONDS) as http:
            yield http

    def console(self, wrong_by: int, *words: str) -> Any:
        """Return the output of a console command on a machine whose clock is wrong."""
        plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        answer = subprocess.run(
            [sys.executable, "-m", "service.admin", *words, "--json"],
            cwd=CHECKOUT,
            env=plain | environment_of(self.redis) | with_clock(wrong_by),
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(answer.stdout)


@pytest.fixture(scope="module")
def instances(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instances]:
    folder = tmp_path_factory.mktemp("clocks")
    server = start_redis(folder)
    try:
        with ExitStack() as running:

            def start(**variables: str) -> ServiceProcess:
                variables |= {
                    "TOKEN_SERVICE_BASE_URL": ISSUER,
                    "TOKEN_SERVICE_VERIFY_CACHE": "on",
                    "TOKEN_SERVICE_LOGIN_ATTEMPTS": f"{LIMIT}/hour",
                }
                return running.enter_context(running_service(folder, environment_of(server, **variables)))

            yield Instances(server, start(), [start(**with_clock(AHEAD)), start(**with_clock(BEHIND))])
    finally:
        stop(server.process)


Outcomes = list[tuple[str, object]]


def read_seconds(server: RedisServer) -> int:
    """Return the time by Redis, rounded down."""
    with server.connect() as store:
        return int(store.time()[0])


async def live_through(http: httpx2.AsyncClient, credentials: UserCredentials, server: RedisServer) -> Outcomes:
    """Run every operation at least once, and return the parts of the answers that do not change by chance.

    Ends with all sessions over. Each time in an answer lies between two readings of Redis' clock, however far apart.
    """
    seen: Outcomes = []
    began = read_seconds(server)
    browser = Browser(http)
    code = await browser.get_code(credentials=credentials, scope="realm:main role:enduser")
    seen += [("cookies", sorted(browser.cookie_values))]
    exchanged = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))
    first = tokens_of(await WEB_SHOP.log_in(http, credentials))
    seen += [("lifetimes", [tokens["expires_in"] for tokens in (exchanged, first)])]
    second = tokens_of(await WEB_SHOP.refresh(http, first["refresh_token"]))
    for _ in range(3):
        again = tokens_of(await WEB_SHOP.refresh(http, first["refresh_token"]))
        seen += [("the grace leads to the head", again["refresh_token"] == second["refresh_token"])]
    for _ in range(3):
        before = read_seconds(server)
        verified = await http.get(VERIFY, headers=bearer(again["access_token"]))
        now = read_seconds(server)
        told = (await GATEWAY.introspect(http, again["access_token"])).json()
        seen += [("introspection", (told["active"], began <= told["iat"] <= now, told["exp"] - told["iat"]))]
        ends = told["exp"] - int(verified.headers["X-Auth-Expires-In"])
        seen += [("verify", (verified.status_code, before - 1 <= ends <= now + 1))]
        told = (await AUDITOR.introspect(http, again["refresh_token"])).json()
        lasts = told["exp"] - REFRESH_SECONDS
        seen += [("introspection", (told["active"], began <= told["iat"] <= lasts <= now))]
    for _ in range(3):
        page = Page(await browser.open(SESSIONS))
        minutes = (read_seconds(server) - began) // 60
        times = [page_text("ago.now"), page_text("ago.minutes_one").format(count=1)]
        times += [page_text("ago.minutes_other").format(count=count) for count in range(2, minutes + 1)]
        seen += [("the page says when", any(time in page.text for time in times[: minutes + 1]))]
    await WEB_SHOP.revoke(http, second["refresh_token"])
    seen += [("revoked", [(await http.get(VERIFY, headers=bearer(again["access_token"]))).status_code for _ in "123"])]
    ended = await http.post(REVOKE_ALL, headers=bearer(exchanged["access_token"]))
    seen += [("revokeAll", ended.status_code)]
    for _ in range(3):
        seen += [("dead", (await http.get(VERIFY, headers=bearer(exchanged["access_token"]))).status_code)]
        seen += [("over", (await PHONE_APP.refresh(http, exchanged["refresh_token"])).status_code)]
        seen += [("signed out", page_text("login.username") in Page(await browser.open(SESSIONS)).text)]
    renewed = tokens_of(await PHONE_APP.log_in(http, credentials))
    seen += [("a new session lives", (await http.get(VERIFY, headers=bearer(renewed["access_token"]))).status_code)]
    for _ in range(LIMIT + 2):
        guess = await PHONE_APP.log_in(http, UserCredentials(credentials.username, "a guess"))
        seen += [("guess", (guess.status_code, int(guess.headers.get("Retry-After", 0)) <= HOUR_SECONDS))]
    return seen


@pytest.mark.clause("decided-i9-one-clock")
async def test_wrong_clocks_of_instances_change_no_answer(instances: Instances) -> None:
    async with instances.client([instances.right]) as http:
        right = await live_through(http, ALICE, instances.redis)
    forget_failures(instances.redis)
    async with instances.client() as http:
        wrong = await live_through(http, ALICE, instances.redis)

    assert wrong == right
    assert ("verify", (200, True)) in right
    assert ("introspection", (True, True, 600)) in right
    assert ("introspection", (True, True)) in right
    assert ("the page says when", True) in right
    assert ("guess", (429, True)) in right


@pytest.mark.clause("decided-i9-one-clock")
@pytest.mark.parametrize("which", [0, 1], ids=["ahead", "behind"])
async def test_the_clocks_are_wrong(instances: Instances, which: int) -> None:
    """The Date header shows the machine's own clock, and no cookie depends on it."""
    forget_failures(instances.redis)
    async with instances.client([instances.wrong[which]]) as http:
        browser = Browser(http)
        page = await browser.sign_in(stay="yes")
        now, date = read_seconds(instances.redis), parsedate_to_datetime(page.headers["Date"]).timestamp()
        assert round((date - now) / AHEAD) == (AHEAD, BEHIND)[which] / AHEAD
        assert "ts_session" in browser.cookie_values
        assert all(cookie.expires is None or cookie.expires > now for cookie in browser.cookies.jar)


@pytest.mark.clause("decided-i9-one-clock")
async def test_console_uses_the_clock_of_redis(instances: Instances) -> None:
    forget_failures(instances.redis)
    async with instances.client() as http:
        tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    inspections = [
        instances.console(wrong_by, "token", "inspect", tokens["refresh_token"]) for wrong_by in (0, AHEAD, BEHIND)
    ]
    assert inspections[1] == inspections[0]
    assert inspections[2] == inspections[0]


def forget_failures(server: RedisServer) -> None:
    with server.connect() as store:
        for key in store.scan_iter("login:*"):
            store.delete(key)
