"""The example client as a process beside the service with the example seed, used with a real browser."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.clients.example_client import SCOPE, is_answering
from tests.conftest import environment_of
from tests.pages.accessibility import assert_fits
from tests.pages.browser import DESKTOP, NO_JAVASCRIPT, PHONE, BrowserErrors, Device, new_context, running_browser
from tests.pages.steps import allow, expect_consent, log_in
from tests.support.servers import CHECKOUT, ServiceProcess, free_port, running_service, start_redis, stop
from tests.support.waiting import wait_until

WEB_SHOP_PORT = free_port()
CLIENTS = {
    "web-shop": ["--port", str(WEB_SHOP_PORT)],
    "browser-app": ["--client-id", "browser-app", "--client-secret", "", "--port", str(free_port())],
}
"""The seed has the port of the first client. The second one is public, so any port works."""

NAMES = {"web-shop": "Example Web Shop", "browser-app": "Example Browser App"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("example")
    text = (CHECKOUT / "examples" / "seed.yaml").read_text()
    seed, changes = re.subn(
        r"(client_id: web-shop\n(?: .+\n)*? +redirect_uris: \[http://127\.0\.0\.1:)9000", rf"\g<1>{WEB_SHOP_PORT}", text
    )
    assert changes == 1
    (folder / "seed.yaml").write_text(seed)
    server = start_redis(folder)
    environment = environment_of(server, TOKEN_SERVICE_SEED_FILE=str(folder / "seed.yaml"))
    with running_service(folder, environment) as service:
        yield service
    stop(server.process)


@contextmanager
def running_client(issuer: str, folder: Path, *arguments: str) -> Iterator[str]:
    """Run the client. Yields its address when it answers."""
    command = [sys.executable, "-m", "examples.client", "--issuer", issuer, *arguments]
    log = folder / "client.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=CHECKOUT, stdout=output, stderr=output)
    try:
        wait_until(lambda: "Open " in log.read_text() or process.poll() is not None, "the example client to start")
        (address,) = re.findall(r"http://\S+", log.read_text())
        wait_until(lambda: is_answering(address) or process.poll() is not None, address)
        assert process.poll() is None, log.read_text()
        yield address
    finally:
        stop(process)


@pytest.fixture(scope="module", params=list(CLIENTS))
def client_id(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def client(service: ServiceProcess, client_id: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_client(service.url, tmp_path_factory.mktemp(client_id), *CLIENTS[client_id]) as address:
        yield address


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


@pytest.fixture
def device() -> Device:
    return DESKTOP


@pytest.fixture
async def page(browser: Browser, service: ServiceProcess, device: Device) -> AsyncIterator[Page]:
    """A page of an isolated browser, which must report no errors. Paths are those of the service."""
    browser_errors = BrowserErrors()
    context = await new_context(browser, device, service.url)
    browser_errors.watch(context)
    yield await context.new_page()
    await context.close()
    assert not browser_errors.take()


async def press(page: Page, name: str) -> None:
    await page.get_by_role("button", name=name, exact=True).click()


async def expect_notice(page: Page, words: str) -> None:
    await expect(page.get_by_role("status")).to_contain_text(words)


async def start(page: Page, client: str) -> None:
    await page.goto(client)
    await press(page, "Sign in with Token Service")


async def read_tokens(page: Page) -> list[str]:
    tokens: list[str] = await page.locator("code").all_inner_texts()
    return tokens


@pytest.mark.parametrize(
    "device",
    [
        pytest.param(DESKTOP, id="desktop"),
        pytest.param(PHONE, id="phone", marks=pytest.mark.long),
        pytest.param(NO_JAVASCRIPT, id="no JavaScript", marks=pytest.mark.long),
    ],
)
async def test_a_person_signs_in_allows_refreshes_logs_out_and_comes_back(
    page: Page, client: str, client_id: str
) -> None:
    await start(page, client)
    await log_in(page)
    await expect_consent(page, NAMES[client_id])
    await allow(page)

    await page.wait_for_url(client)
    await expect_notice(page, "You are signed in.")
    await expect(page.get_by_text(SCOPE)).to_be_visible()
    first = await read_tokens(page)
    assert [token[:6] for token in first] == ["tsat1_", "tsrt1_"]
    await assert_fits(page)

    await press(page, "Refresh")
    await expect_notice(page, "The tokens were refreshed.")
    assert not set(await read_tokens(page)) & set(first)

    await press(page, "Log out")
    await expect_notice(page, "You are logged out. The tokens are revoked.")
    await expect(page.get_by_text("You are not signed in.")).to_be_visible()

    await start(page, client)
    await expect_consent(page, NAMES[client_id])
    await allow(page)
    await expect_notice(page, "You are signed in.")
