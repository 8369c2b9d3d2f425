"""The fixtures of all tests: a Redis, a clock that can be moved, a worker and an HTTP client.

The server is started once and emptied for each test that asks for it. The registry is seeded once and restored from a
dump, since hashing its passwords takes longer than most tests.

Redis may be one server, a master with Sentinels, or a cluster. The tests of some folders always run on several, the
others with `--all`. `--topology` picks one of them for all tests.
"""

import asyncio
import io
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Protocol
from zipfile import ZipFile

import httpx2
import pytest
import redis
from hypothesis import HealthCheck
from hypothesis import settings as fuzzing
from passlib.context import CryptContext
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.app import build_app
from service.config.settings import Settings, load_settings
from service.crypto import password_hashing
from service.observability.logs import configure_logging
from service.protocol.user import User, identify_user
from service.worker import Worker
from tests.cluster.nodes import running_calm_cluster, running_calm_sentinel
from tests.support.browser import Browser
from tests.support.clients_and_users import ALICE, PHONE_APP, PHONE_CALLBACK, OAuthClient, UserCredentials
from tests.support.codes import allow_code, make_code_to_allow
from tests.support.loop_time import LoopTime, moving_loop_time
from tests.support.openapi import check_answer
from tests.support.servers import CHECKOUT, RedisServer, start_redis, stop
from tools.wheels import GATEWAY, build_wheel

# httpx2 looks for this absent package at each request to an application, which takes 5 % of the time of such tests.
sys.modules["sniffio"] = None  # type: ignore[assignment]

pytest_plugins = ("tests.support.selection", "token_service_testing.pytest_plugin")

SEED = CHECKOUT / "tests" / "seed.yaml"
SECRET_KEY = "a secret key of the tests of 32 bytes or more"

TOPOLOGIES = ("single", "sentinel", "cluster")
TOPOLOGIES_OF_FOLDERS = {"store": TOPOLOGIES, "redis_client": TOPOLOGIES, "races": ("single", "cluster")}
"""The topologies on which the tests of a folder run without `--all`. Behind Sentinels a race is that of one server."""

MakeSettings = Callable[..., Settings]

ROUNDING_MS = 1
"""Redis reports times in whole milliseconds."""


class AnyRedis(Protocol):
    """A server, or several that form one store."""

    @property
    def url(self) -> str: ...

    def url_of(self, user: str) -> str:
        """Return the URL for one of the users that every server of the tests has."""

    def connect(self) -> redis.Redis:
        """Return a plain client."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also run the tests marked long, and all on every topology")
    parser.addoption("--topology", choices=TOPOLOGIES, help="run all tests on this one only")


# The examples are the same in each run, so that no change fails by chance. With --all there are many more, and others
# each time. A failing example is printed in its smallest form. Examples have no time limit.
timeless = fuzzing(deadline=None, suppress_health_check=[HealthCheck.too_slow])
fuzzing.register_profile("bounded", timeless, max_examples=30, derandomize=True, database=None)
fuzzing.register_profile("thorough", timeless, max_examples=1_000, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    # A script that runs the tests in the background ignores Ctrl-C. The processes that a test starts would inherit
    # that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fuzzing.load_profile("thorough" if config.getoption("--all") else "bounded")
    if config.getoption("--all"):
        config.option.markexpr = ""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the tests that use the shared Redis with its topology. A test with `own_redis` has none."""
    if "topology" not in metafunc.fixturenames or "own_redis" in metafunc.fixturenames:
        return
    if metafunc.definition.get_closest_marker("single_server"):
        return
    config = metafunc.config
    chosen: str | None = config.getoption("--topology")
    folder = metafunc.definition.path.relative_to(CHECKOUT / "tests").parts[0]
    if chosen or config.getoption("--all"):
        metafunc.parametrize("topology", [chosen] if chosen else TOPOLOGIES)
    elif folder in TOPOLOGIES_OF_FOLDERS:
        metafunc.parametrize("topology", TOPOLOGIES_OF_FOLDERS[folder])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run only the first parameter of a test on other topologies than the single server, unless `--all` is given.

    Tests marked long run on the single server only, unless `--topology` is given.
    """
    if config.getoption("--topology"):
        return
    left_out = [item for item in items if item.get_closest_marker("long") and _find_topology(item) != "single"]
    items[:] = [item for item in items if item not in set(left_out)]
    config.hook.pytest_deselected(items=left_out)
    seen: set[tuple[str, str]] = set()
    for item in items:
        topology = _find_topology(item)
        variant = item.nodeid.partition("[")[0], topology
        if topology != "single" and variant in seen:
            item.add_marker(pytest.mark.long)
        seen.add(variant)


def _find_topology(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("topology", "single") if callspec else "single"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def loop_time() -> Iterator[LoopTime]:
    """Slow down the time of this process, so that no time limit is reached because the machine is slow."""
    with moving_loop_time() as loop_time:
        yield loop_time


@pytest.fixture
def held_time(loop_time: LoopTime) -> Iterator[LoopTime]:
    """Stop the time of this process, for tests that move it."""
    with loop_time.held():
        yield loop_time


REAL_COST = password_hashing._argon2id, password_hashing.MEMORY_KIB, password_hashing.PASSES


def _set_cost(patch: pytest.MonkeyPatch, context: CryptContext, memory_kib: int, passes: int) -> None:
    patch.setattr(password_hashing, "_argon2id", context)
    patch.setattr(password_hashing, "MEMORY_KIB", memory_kib)
    patch.setattr(password_hashing, "PASSES", passes)


@contextmanager
def lowering_hash_cost() -> Iterator[None]:
    """Lower the cost of password hashes in this process to the least that argon2 allows."""
    with pytest.MonkeyPatch.context() as patch:
        _set_cost(patch, password_hashing._argon2id.copy(argon2__memory_cost=64, argon2__time_cost=1), 64, 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_hashes() -> Iterator[None]:
    with lowering_hash_cost():
        yield


@pytest.fixture
def real_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the real cost of hashes, for tests of that cost."""
    _set_cost(monkeypatch, *REAL_COST)


@pytest.fixture(scope="session")
def single_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server for the whole run."""
    server = start_redis(tmp_path_factory.mktemp("redis"))
    yield server
    stop(server.process)


@contextmanager
def starting_on_demand(folders: pytest.TempPathFactory) -> Iterator[Callable[[str], AnyRedis]]:
    """Start the Redis of a topology at its first use, and stop it at the end."""
    starts: dict[str, Callable[[Path], AbstractContextManager[AnyRedis]]] = {
        "single": running_redis,
        "sentinel": running_calm_sentinel,
        "cluster": running_calm_cluster,
    }
    with ExitStack() as running:
        yield cache(lambda topology: running.enter_context(starts[topology](folders.mktemp(topology))))


@contextmanager
def running_redis(folder: Path) -> Iterator[RedisServer]:
    server = start_redis(folder)
    yield server
    stop(server.process)


@pytest.fixture(scope="session")
def get_redis(
    single_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], AnyRedis]]:
    with starting_on_demand(tmp_path_factory) as find:
        yield lambda topology: single_server if topology == "single" else find(topology)


@pytest.fixture
def topology() -> str:
    """The topology of `redis_server`. `pytest_generate_tests` may parametrize it."""
    return "single"


@pytest.fixture
def redis_server(get_redis: Callable[[str], AnyRedis], topology: str) -> AnyRedis:
    """The server that the whole run shares. Use `store` for an empty one."""
    return get_redis(topology)


@pytest.fixture(scope="session")
def get_redis_client(get_redis: Callable[[str], AnyRedis]) -> Iterator[Callable[[str], redis.Redis]]:
    """Return the connection for all tests of a topology. Connecting takes longer than emptying a server."""
    with ExitStack() as open_clients:
        found: dict[str, redis.Redis] = {}

        def find(topology: str) -> redis.Redis:
            if topology not in found:
                found[topology] = open_clients.enter_context(get_redis(topology).connect())
            return found[topology]

        yield find


@pytest.fixture
def store(get_redis_client: Callable[[str], redis.Redis], topology: str) -> redis.Redis:
    """A plain client of an empty Redis."""
    client = get_redis_client(topology)
    client.flushall()
    return client


class Clock:
    """The clock of the service and of Redis: scripts get an offset, and the TTL of every key shrinks."""

    def __init__(self, store: redis.Redis) -> None:
        self._store = store
        self.offset_ms = 0

    def advance(self, seconds: float) -> None:
        step_ms = round(seconds * 1000)
        self.offset_ms += step_ms
        for key in self._store.scan_iter(count=1000):
            left_ms = self._store.pttl(key)
            if left_ms > step_ms:
                self._store.pexpire(key, left_ms - step_ms)
            elif left_ms >= 0:
                self._store.delete(key)


@pytest.fixture
def clock(store: redis.Redis) -> Clock:
    return Clock(store)


def read_server_ms(store: redis.Redis) -> int:
    seconds, microseconds = store.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


class Elapsed:
    """The time since the test began, by the clock of Redis, which no test can hold."""

    def __init__(self, store: redis.Redis) -> None:
        self._store = store
        self._began_ms = read_server_ms(store)

    def leaves(self, left_ms: float, lifetime_ms: int) -> bool:
        """Return True if `left_ms`, read before this call, can be the rest of a lifetime that began in this test."""
        elapsed_ms = read_server_ms(self._store) - self._began_ms
        return lifetime_ms - elapsed_ms - ROUNDING_MS <= left_ms <= lifetime_ms


@pytest.fixture
def elapsed(store: redis.Redis) -> Elapsed:
    return Elapsed(store)


def environment_of(server: AnyRedis, **variables: str) -> dict[str, str]:
    """Return the environment of a service on this server, with tests/seed.yaml as its seed."""
    return {
        "REDIS_URL": server.url,
        "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY,
        "TOKEN_SERVICE_SEED_FILE": str(SEED),
        "LOG_LEVEL": "warning",
    } | variables


@pytest.fixture
def make_settings(redis_server: AnyRedis) -> MakeSettings:
    """Settings for the test's server; keyword arguments are environment variables."""

    def make(**variables: str) -> Settings:
        return load_settings(environment_of(redis_server, **variables))

    return make


@pytest.fixture(scope="session")
def registry_dump(single_server: RedisServer) -> Mapping[bytes, bytes]:
    """Every key that the seed leaves, as Redis dumps it."""
    raw = redis.Redis(port=single_server.port)
    raw.flushall()
    asyncio.run(_seed(load_settings(environment_of(single_server))))
    dump = {key: raw.dump(key) or b"" for key in raw.scan_iter() if raw.ttl(key) < 0}
    raw.close()
    return dump


async def _seed(settings: Settings) -> None:
    worker = Worker(settings, lambda: 0)
    await worker.seed_keeper.apply()
    await worker.close()


@pytest.fixture
def own_redis(tmp_path: Path, registry_dump: Mapping[bytes, bytes]) -> Iterator[RedisServer]:
    """A server that the test may stop, with the clients and users of the seed."""
    server = start_redis(tmp_path)
    with redis.Redis(port=server.port) as raw:
        for key, value in registry_dump.items():
            raw.restore(key, 0, value)
    yield server
    server.process.send_signal(signal.SIGCONT)
    stop(server.process)


@pytest.fixture
def registry(registry_dump: Mapping[bytes, bytes], store: redis.Redis) -> None:
    """Restore the clients and users of the seed."""
    pipeline = store.pipeline(transaction=False)
    for key, value in registry_dump.items():
        pipeline.restore(key, 0, value)
    pipeline.execute()


@pytest.fixture
async def worker(make_settings: MakeSettings, clock: Clock, registry: None) -> AsyncIterator[Worker]:
    """A worker with the default settings beside the one of `http`, for tests below HTTP and to make codes."""
    worker = Worker(make_settings(), lambda: clock.offset_ms)
    yield worker
    await worker.close()


@pytest.fixture
def http_worker(make_settings: MakeSettings, clock: Clock, registry: None) -> Worker:
    """The worker behind `http`, for tests that change one of its limits."""
    return Worker(make_settings(), lambda: clock.offset_ms)


@pytest.fixture
async def http(http_worker: Worker) -> AsyncIterator[httpx2.AsyncClient]:
    """An HTTP client of the service with the default settings."""
    async with serving_worker(http_worker) as client:
        yield client


@pytest.fixture(scope="session")
def gateway_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the gateway library."""
    return build_wheel(GATEWAY, tmp_path_factory.mktemp("gateway_wheel"))


@pytest.fixture(scope="session")
def gateway_library(gateway_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the content of the gateway library's wheel, for the path of a Python."""
    folder = tmp_path_factory.mktemp("gateway_library")
    with ZipFile(gateway_wheel) as wheel:
        wheel.extractall(folder)
    return folder


@pytest.fixture
def browser(http: httpx2.AsyncClient) -> Browser:
    """A browser at the service with the default settings."""
    return Browser(http)


@pytest.fixture
def json_logs() -> Iterator[io.StringIO]:
    """The log at level debug, in JSON."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    written = io.StringIO()
    configure_logging("debug", "json", lambda line: written.write(line.decode()))
    yield written
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("uvicorn.access").disabled = False


@asynccontextmanager
async def serving(
    settings: Settings, clock: Clock, *, address: str = "203.0.113.7"
) -> AsyncIterator[httpx2.AsyncClient]:
    """Run the service in this process with these settings. `address` is the caller's.

    docs/openapi.yaml must describe each of its responses.
    """
    async with serving_worker(Worker(settings, lambda: clock.offset_ms), address=address) as client:
        yield client


@asynccontextmanager
async def serving_worker(worker: Worker, *, address: str = "203.0.113.7") -> AsyncIterator[httpx2.AsyncClient]:
    """Run the service in this process with a worker that the test has made."""
    app = build_app(worker)
    async with running_lifespan(app), http_client_for(app, address) as client:
        yield client


def http_client_for(app: ASGIApp, address: str = "203.0.113.7") -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=_in_tasks(app), raise_app_exceptions=False, client=(address, 50_000))
    hooks = {"response": [_check_described]}
    return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", event_hooks=hooks)


def _in_tasks(app: ASGIApp) -> ASGIApp:
    """Run each request in a task, as a server does. Otherwise its time budget would apply to the calls of the test."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.gather(app(scope, receive, send))

    return answer


async def _check_described(response: httpx2.Response) -> None:
    await response.aread()
    check_answer(response)


@asynccontextmanager
async def running_lifespan(app: ASGIApp) -> AsyncIterator[None]:
    """Start and end an application as a server does."""
    to_app: asyncio.Queue[Message] = asyncio.Queue()
    from_app: asyncio.Queue[Message] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}

    async def run() -> None:
        await app(scope, to_app.get, from_app.put)

    running = asyncio.create_task(run())
    await to_app.put({"type": "lifespan.startup"})
    assert (await from_app.get())["type"] == "lifespan.startup.complete"
    try:
        yield
    finally:
        await to_app.put({"type": "lifespan.shutdown"})
        assert (await from_app.get())["type"] == "lifespan.shutdown.complete"
        await running


async def make_code(
    worker: Worker,
    credentials: UserCredentials = ALICE,
    client: OAuthClient = PHONE_APP,
    *,
    redirect_uri: str = PHONE_CALLBACK,
    scope: str = "realm:main role:enduser",
    code_challenge: str | None = None,
) -> str:
    """Return an authorization code as the consent page issues it. Users of other realms need no record here."""
    user = await worker.registry.users.find(identify_user(credentials.realm, credentials.username))
    user = user or User(realm=credentials.realm, username=credentials.username)
    code = make_code_to_allow(user.username, client.client_id, redirect_uri, scope, code_challenge)
    name = await allow_code(worker.browser_sessions, worker.consents, worker.keyring, user, code)
    return name.text
