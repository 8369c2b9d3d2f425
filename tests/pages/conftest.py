"""Fixtures of the pages in a real browser: the service as a process, a web application, and browsers.

Servers are started once for the folder, and each test finds only the seed in Redis. The browser is started once for
each file. Its event loop is that of the file's tests, and must end with them.
"""

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
from tests.pages.browser import DESKTOP, BrowserErrors, Device, new_context, running_browser
from tests.pages.deployment import Deployment, forget_all_but_the_registry, running_deployment
from tests.support.servers import ServiceProcess, free_port, running_service
from tests.support.waiting import MAX_WAIT_SECONDS

OpenPage = Callable[..., Awaitable[Page]]
StartService = Callable[..., ServiceProcess]


@pytest.fixture(scope="session")
def shared_application() -> Iterator[Application]:
    with running_application() as application:
        yield application


@pytest.fixture(scope="module")
def service_port() -> int:
    """A free port for a service whose provider must know its address before it starts."""
    return free_port()


@pytest.fixture(scope="session")
def shared_deployment(
    shared_application: Application, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """The shared deployment. A file that needs another service overrides this fixture."""
    with running_deployment(tmp_path_factory.mktemp("pages"), shared_application.callback) as deployment:
        yield deployment


@pytest.fixture
def application(shared_application: Application) -> Application:
    """The application of the clients `shop` and `phone-app`, without recorded visits."""
    shared_application.forget()
    return shared_application


@pytest.fixture
def store(shared_deployment: Deployment) -> Iterator[redis.Redis]:
    """A plain client of the service's Redis, which holds only the registry."""
    client = shared_deployment.redis.connect()
    forget_all_but_the_registry(client)
    yield client
    client.close()


@pytest.fixture
def service(shared_deployment: Deployment, store: redis.Redis) -> ServiceProcess:
    """The service with its default settings and without logins."""
    return shared_deployment.service


@pytest.fixture
def start_service(shared_deployment: Deployment, store: redis.Redis, tmp_path: Path) -> Iterator[StartService]:
    """Return a function that starts further services on the same Redis. Keyword arguments are environment variables."""
    with ExitStack() as stack:

        def start(**variables: str) -> ServiceProcess:
            return stack.enter_context(running_service(tmp_path, {**shared_deployment.environment, **variables}))

        yield start


@pytest.fixture
async def worker(shared_deployment: Deployment, service: ServiceProcess) -> AsyncIterator[Worker]:
    """A worker on the same Redis, to register clients and users that the seed does not have."""
    worker = Worker(load_settings(shared_deployment.environment))
    yield worker
    await worker.close()


@pytest.fixture
async def http(service: ServiceProcess) -> AsyncIterator[httpx2.AsyncClient]:
    """An HTTP client of the service, for calls of an application's server."""
    async with httpx2.AsyncClient(base_url=service.url, verify=False, timeout=MAX_WAIT_SECONDS) as client:
        yield client


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


@pytest.fixture
def browser_errors() -> BrowserErrors:
    return BrowserErrors()


@pytest.fixture
async def open_page(
    browser: Browser, service: ServiceProcess, application: Application, browser_errors: BrowserErrors
) -> AsyncIterator[OpenPage]:
    """Return a function that opens a page in an isolated browser, as in `await open_page(PHONE)`.

    Paths are those of `service`.

    The test fails if a browser reports an error (see Complaints). A second tab is `await page.context.new_page()`.
    """
    async with AsyncExitStack() as stack:

        async def open_page(device: Device = DESKTOP) -> Page:
            context = await new_context(browser, device, service.url)
            stack.push_async_callback(context.close)
            browser_errors.watch(context)
            return await context.new_page()

        yield open_page
    left = browser_errors.take()
    assert not left, "the browser complains:\n" + "\n".join(left)


@pytest.fixture
async def page(open_page: OpenPage) -> Page:
    return await open_page()
