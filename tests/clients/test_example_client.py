"""The example client with the real service: the whole code flow except for the pages."""

import re
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest

from examples.client import ExampleClient
from service.config.settings import load_settings
from service.worker import Worker
from tests.clients.example_client import SCOPE, is_answering, press, read_page
from tests.conftest import environment_of, make_code
from tests.support.clients_and_users import WEB_SHOP
from tests.support.servers import CHECKOUT, ServiceProcess, free_port, running_service, start_redis, stop
from tests.support.waiting import wait_until

HOME = "http://127.0.0.1:9000"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a service on its own Redis, with the seed that ./scripts/serve would load."""
    server = start_redis(tmp_path_factory.mktemp("redis"))
    yield environment_of(server, TOKEN_SERVICE_SEED_FILE=str(CHECKOUT / "examples" / "seed.yaml"))
    stop(server.process)


@pytest.fixture(scope="module")
def service(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service"), environment) as service:
        yield service


@pytest.fixture
async def worker(environment: dict[str, str], service: ServiceProcess) -> AsyncIterator[Worker]:
    """A worker that makes codes as the consent page would."""
    worker = Worker(load_settings(environment), lambda: 0)
    yield worker
    await worker.close()


@asynccontextmanager
async def browser_at_client(issuer: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A browser that keeps cookies and returns each redirect."""
    options = {"issuer": issuer, "client_id": WEB_SHOP.client_id, "client_secret": WEB_SHOP.client_secret}
    app = ExampleClient(Namespace(**options, port=9000, scope=SCOPE)).make_app()
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=HOME) as browser:
        yield browser


@pytest.fixture
async def browser(service: ServiceProcess) -> AsyncIterator[httpx2.AsyncClient]:
    async with browser_at_client(service.url) as browser:
        yield browser


async def ask_to_sign_in(browser: httpx2.AsyncClient) -> dict[str, str]:
    """Start a login at the client. Returns the parameters of the authorization request."""
    response = await press(browser, "/sign-in")
    assert response.status_code == 303, response.text
    return {name: value for name, (value,) in parse_qs(urlsplit(response.headers["location"]).query).items()}


async def come_back(browser: httpx2.AsyncClient, **answer: str) -> str:
    """Open the callback. Returns the page after it."""
    response = await browser.get(f"/callback?{urlencode(answer)}")
    assert (response.status_code, response.headers["location"]) == (303, "/")
    return await read_page(browser)


async def sign_in(browser: httpx2.AsyncClient, worker: Worker, issuer: str) -> str:
    request_parameters = await ask_to_sign_in(browser)
    code = await make_code(
        worker,
        client=WEB_SHOP,
        redirect_uri=request_parameters["redirect_uri"],
        code_challenge=request_parameters["code_challenge"],
    )
    return await come_back(browser, code=code, state=request_parameters["state"], iss=issuer)


def shown_tokens(page: str) -> list[str]:
    return re.findall(r"<code>([\w-]+…[\w-]+)</code>", page)


async def test_code_is_exchanged_refreshed_and_revoked(
    browser: httpx2.AsyncClient, service: ServiceProcess, worker: Worker
) -> None:
    signed_in = await sign_in(browser, worker, service.url)
    assert "You are signed in." in signed_in
    assert SCOPE in signed_in
    assert "600 seconds" in signed_in
    access_token, refresh_token = shown_tokens(signed_in)
    assert (len(access_token), len(refresh_token)) == (19, 19)

    await press(browser, "/refresh")
    refreshed = await read_page(browser)
    assert "The tokens were refreshed." in refreshed
    assert not set(shown_tokens(refreshed)) & {access_token, refresh_token}

    await press(browser, "/log-out")
    logged_out = await read_page(browser)
    assert "You are logged out" in logged_out
    assert not shown_tokens(logged_out)
    assert "You are not signed in." in logged_out


async def test_response_to_another_browser_is_rejected(
    browser: httpx2.AsyncClient, service: ServiceProcess, worker: Worker
) -> None:
    request_parameters = await ask_to_sign_in(browser)
    answers = {"another state": {"state": "x", "iss": service.url}, "no state": {"iss": service.url}}
    for answer in answers.values():
        assert "did not start that sign-in" in await come_back(browser, code="x", **answer)
    async with browser_at_client(service.url) as other:
        assert "did not start that sign-in" in await come_back(
            other, code="x", state=request_parameters["state"], iss=service.url
        )

    assert "You are signed in." in await sign_in(browser, worker, service.url)


@pytest.mark.parametrize("iss", [{}, {"iss": "http://127.0.0.1:1"}, {"iss": ""}], ids=["none", "another", "empty"])
async def test_response_from_another_service_is_rejected(browser: httpx2.AsyncClient, iss: dict[str, str]) -> None:
    request_parameters = await ask_to_sign_in(browser)

    assert "does not come from" in await come_back(browser, code="x", state=request_parameters["state"], **iss)
    assert "did not start that sign-in" in await come_back(browser, code="x", state=request_parameters["state"], **iss)


async def test_errors_are_shown_as_text_and_never_as_markup(
    browser: httpx2.AsyncClient, service: ServiceProcess
) -> None:
    denied = await ask_to_sign_in(browser)
    assert "denied the request. (access_denied)" in await come_back(
        browser, error="access_denied", state=denied["state"], iss=service.url
    )
    wrong = await ask_to_sign_in(browser)
    assert "no longer valid. (invalid_grant:" in await come_back(
        browser, code="x", state=wrong["state"], iss=service.url
    )
    odd = await ask_to_sign_in(browser)
    await browser.get(f"/callback?{urlencode({'error': '<script>', 'state': odd['state'], 'iss': service.url})}")
    page = await browser.get("/")
    assert "&lt;script&gt;" in page.text
    assert "<script" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


async def test_only_a_form_of_its_own_starts_something(browser: httpx2.AsyncClient) -> None:
    for form in ({}, {"csrf_token": "x"}):
        response = await browser.post("/sign-in", data=form)
        assert (response.status_code, response.headers["location"]) == (303, "/")
        assert "out of date" in await read_page(browser)


async def test_unreachable_service_is_explained() -> None:
    async with browser_at_client(f"http://127.0.0.1:{free_port()}") as browser:
        response = await press(browser, "/sign-in")

        assert response.headers["location"] == "/"
        assert "Is ./scripts/serve running?" in await read_page(browser)


def test_start_prints_its_address_and_ends_by_ctrl_c() -> None:
    port = free_port()
    command = [sys.executable, "-m", "examples.client", "--port", str(port)]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"Open http://127.0.0.1:{port}/ in a browser.\n"
            wait_until(lambda: is_answering(f"http://127.0.0.1:{port}/"), "the example client to start")
        finally:
            process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read() == ""
