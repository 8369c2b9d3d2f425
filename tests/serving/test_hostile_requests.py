"""The longest step of the event loop for any single request makes a bounded number of calls.

`scripts/bench` measures the duration of such a step, which is five milliseconds at most.
"""

import asyncio
import http.client
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Literal
from urllib.parse import urlencode

import msgspec
import pytest

from service.app import build_app
from service.config.settings import load_settings
from service.protocol.user import MAX_NAME_CHARACTERS
from service.worker import Worker
from tests.conftest import environment_of
from tests.serving.conftest import running_server
from tests.support.clients_and_users import ALICE, PHONE_APP, TOKEN, login_form
from tests.support.hostile_requests import Answer, Caller, HostileRequest, make_hostile_requests, make_variables
from tests.support.servers import start_redis, stop
from tests.support.waiting import MAX_WAIT_SECONDS

MOST_CALLS = 26_000
"""The limit of calls of Python and C functions in one step. 16 requests of 250 chunks need the most."""

MOST_CALLS_FOR = {"a long X-Forwarded-For": 62_000, "16 upgrades of 250 headers": 34_000, "a long state": 42_000}
"""A proxy appends to the header that it received, so each of 60,000 empty hops is parsed.

A login page has a link back to the client, and so quotes the state as often as a redirect does.

A head that offers an upgrade is read twice, which takes two milliseconds for 16 of them.
"""

MOST_NORMALIZED = 18 * (MAX_NAME_CHARACTERS + 1)
"""The limit of characters of a normalized text, whose cost is quadratic. One ligature becomes 18 characters."""

NormalizationForm = Literal["NFC", "NFD", "NFKC", "NFKD"]

HOSTILE = [hostile.name for hostile in make_hostile_requests("")]


@dataclass
class WatchedService:
    """The service in a thread, and a record of its event loop since the last request."""

    port: int = 0
    hostile: dict[str, HostileRequest] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    """The number of function calls in each step of the loop."""

    normalized: list[int] = field(default_factory=list)
    """The length of each normalized text."""

    def send(self, hostile: HostileRequest) -> Answer:
        """Send a request and return the response. `calls` and `normalized` then cover its whole handling."""
        caller = Caller(self.port)
        self.calls.clear()
        self.normalized.clear()
        answer = caller.ask(hostile)
        self.is_well()
        caller.close()
        return answer

    def is_well(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=MAX_WAIT_SECONDS)
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
        connection.close()
        return status == 200

    def log_in(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=MAX_WAIT_SECONDS)
        form = urlencode(PHONE_APP.credentials | login_form(ALICE))
        connection.request("POST", TOKEN, form, {"Content-Type": "application/x-www-form-urlencoded"})
        body = msgspec.json.decode(connection.getresponse().read())
        connection.close()
        token: str = body["access_token"]
        return token


@pytest.fixture(scope="module")
def watched_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedService]:
    folder: Path = tmp_path_factory.mktemp("attacked")
    redis = start_redis(folder)
    variables = environment_of(redis, **make_variables())
    watched_service = WatchedService()
    app = build_app(Worker(load_settings(variables)))
    with pytest.MonkeyPatch.context() as patch:
        watch_steps(patch, watched_service)
        with running_server(app, loop="asyncio", lifespan="on") as server:
            watched_service.port = server.port
            watched_service.hostile = {
                hostile.name: hostile for hostile in make_hostile_requests(watched_service.log_in())
            }
            yield watched_service
    stop(redis.process)


def watch_steps(patch: pytest.MonkeyPatch, watched_service: WatchedService) -> None:
    """Watch every callback of every event loop. Only one loop is running."""
    run, normalize = asyncio.Handle._run, unicodedata.normalize

    def run_counted(handle: asyncio.Handle) -> None:
        calls = 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            if event in ("call", "c_call"):
                calls += 1

        sys.setprofile(count)
        try:
            run(handle)
        finally:
            sys.setprofile(None)
        watched_service.calls.append(calls)

    def normalize_measured(form: NormalizationForm, text: str) -> str:
        watched_service.normalized.append(len(text))
        return normalize(form, text)

    patch.setattr(asyncio.Handle, "_run", run_counted)
    patch.setattr(unicodedata, "normalize", normalize_measured)


@pytest.mark.clause("decided-one-request-is-bounded")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_requests_do_not_delay_others(watched_service: WatchedService, name: str) -> None:
    hostile = watched_service.hostile[name]
    answer = watched_service.send(hostile)

    assert hostile.is_expected(answer), answer
    assert max(watched_service.calls) <= MOST_CALLS_FOR.get(name, MOST_CALLS)
    assert max(watched_service.normalized, default=0) <= MOST_NORMALIZED
    assert watched_service.is_well()
