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

from service.app import Parts
from service.settings import load_settings
from tests.conftest import environment_of
from tests.pages.application import Application, running_application
from tests.pages.browser import DESKTOP, Complaints, Device, new_context, running_browser
from tests.pages.stage import forget_all_but_the_registry, write_seed
from tests.servers import RedisServer, ServiceProcess, running_service, start_redis, stop

OpenPage = Callable[..., Awaitable[Page]]
StartService = Callable[..., ServiceProcess]


@pytest.fixture(scope="session")
def shared_application() -> Iterator[Application]:
    with running_application() as application:
        yield application


@pytest.fixture(scope="session")
def pages_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = start_redis(tmp_path_factory.mktemp("pages_redis"))
    yield server
    stop(server.process)


@pytest.fixture(scope="session")
def pages_environment(
    pages_redis: RedisServer, shared_application: Application, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    seed = write_seed(tmp_path_factory.mktemp("pages_seed") / "seed.yaml", shared_application.callback)
    return environment_of(pages_redis, TOKEN_SERVICE_SEED_FILE=str(seed))


@pytest.fixture(scope="session")
def shared_service(
    pages_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("pages_service"), pages_environment) as service:
        yield service


@pytest.fixture
def application(shared_application: Application) -> Application:
    """The application of the clients `shop` and `phone-app`, which nobody has visited yet."""
    shared_application.forget()
    return shared_application


@pytest.fixture
def store(pages_redis: RedisServer, shared_service: ServiceProcess) -> Iterator[redis.Redis]:
    """A plain client to look into the service's Redis, which holds what is registered and nothing else."""
    client = pages_redis.connect()
    forget_all_but_the_registry(client)
    yield client
    client.close()


@pytest.fixture
def service(shared_service: ServiceProcess, store: redis.Redis) -> ServiceProcess:
    """The service with its default settings; nobody is logged in there."""
    return shared_service


@pytest.fixture
def start_service(pages_environment: dict[str, str], store: redis.Redis, tmp_path: Path) -> Iterator[StartService]:
    """Starts further ones, beside `service` on the same Redis; keyword arguments are environment variables."""
    with ExitStack() as stack:

        def start(**variables: str) -> ServiceProcess:
            return stack.enter_context(running_service(tmp_path, pages_environment | variables))

        yield start


@pytest.fixture
async def parts(service: ServiceProcess, pages_environment: dict[str, str]) -> AsyncIterator[Parts]:
    """The parts of a service on the same Redis, to register who is not in the seed."""
    parts = Parts(load_settings(pages_environment))
    yield parts
    await parts.close()


@pytest.fixture
async def http(service: ServiceProcess) -> AsyncIterator[httpx2.AsyncClient]:
    """What an application's own server says to the service."""
    async with httpx2.AsyncClient(base_url=service.url) as client:
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
