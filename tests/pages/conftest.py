"""The pages in a real browser: the service as a process, an application beside it, and people with their devices.

Servers are started once for all of these tests, and each test finds them as if just seeded. The browser is started once
for a file: its event loop is that of the file's tests, and may not outlive them into other folders.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import httpx2
import pytest
import redis
from playwright.async_api import Browser, Page

from service.config.settings import load_settings
from service.worker import Worker
from tests.pages.application import Application, running_application
from tests.pages.browser import DESKTOP, Complaints, Device, new_context, running_browser
from tests.pages.stage import Stage, forget_all_but_the_registry, running_stage
from tests.support.servers import ServiceProcess, running_service
from tests.support.waiting import MAX_WAIT_SECONDS

OpenPage = Callable[..., Awaitable[Page]]
StartService = Callable[..., ServiceProcess]


@pytest.fixture(scope="session")
def shared_application() -> Iterator[Application]:
    with running_application() as application:
        yield application


@pytest.fixture(scope="session")
def shared_stage(shared_application: Application, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A file whose service has to be another one has a fixture of this name."""
    with running_stage(tmp_path_factory.mktemp("pages"), shared_application.callback) as stage:
        yield stage


@pytest.fixture
def application(shared_application: Application) -> Application:
    """The application of the clients `shop` and `phone-app`, which nobody has visited yet."""
    shared_application.forget()
    return shared_application


@pytest.fixture
def store(shared_stage: Stage) -> Iterator[redis.Redis]:
    """A plain client to look into the service's Redis, which holds what is registered and nothing else."""
    client = shared_stage.redis.connect()
    forget_all_but_the_registry(client)
    yield client
    client.close()


@pytest.fixture
def service(shared_stage: Stage, store: redis.Redis) -> ServiceProcess:
    """The service with its default settings; nobody is logged in there."""
    return shared_stage.service


@pytest.fixture
def start_service(shared_stage: Stage, store: redis.Redis, tmp_path: Path) -> Iterator[StartService]:
    """Starts further ones, beside `service` on the same Redis; keyword arguments are environment variables."""
    with ExitStack() as stack:

        def start(**variables: str) -> ServiceProcess:
            return stack.enter_context(running_service(tmp_path, {**shared_stage.environment, **variables}))

        yield start


@pytest.fixture
async def worker(shared_stage: Stage, service: ServiceProcess) -> AsyncIterator[Worker]:
    """A worker on the same Redis, to register clients and users that are not in the seed."""
    worker = Worker(load_settings(shared_stage.environment))
    yield worker
    await worker.close()


@pytest.fixture
async def http(service: ServiceProcess) -> AsyncIterator[httpx2.AsyncClient]:
    """What an application's own server says to the service."""
    async with httpx2.AsyncClient(base_url=service.url, verify=False, timeout=MAX_WAIT_SECONDS) as client:
        yield client


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture
async def open_page(
    browser: Browser, service: ServiceProcess, application: Application, complaints: Complaints
) -> AsyncIterator[OpenPage]:
    """Opens a page in a browser of its own, `await open_page(PHONE)`; paths are those of `service`.

    The test fails where a browser complained (see Complaints). A second tab is `await page.context.new_page()`.
    """
    async with AsyncExitStack() as stack:

        async def open_page(device: Device = DESKTOP) -> Page:
            context = await new_context(browser, device, service.url)
            stack.push_async_callback(context.close)
            complaints.watch(context)
            return await context.new_page()

        yield open_page
    left = complaints.take()
    assert not left, "the browser complains:\n" + "\n".join(left)


@pytest.fixture
async def page(open_page: OpenPage) -> Page:
    return await open_page()
