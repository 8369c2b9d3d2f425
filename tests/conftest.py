"""What every test can ask for: a Redis of our own, a clock that can be moved, the service, and its cast's HTTP.

The server is started once and emptied before each test that asks for it; the registry is seeded once and put back
from a copy, since hashing its passwords takes longer than most tests.
"""

from __future__ import annotations

import asyncio
import io
import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import redis
import structlog
from passlib.context import CryptContext
from starlette.types import ASGIApp, Message

from service import hashing
from service.app import Parts, assemble
from service.logs import configure_logging
from service.protocol.authorization_code import AuthorizationCode
from service.protocol.user import User, identify_user
from service.settings import Settings, load_settings
from tests.cast import ALICE, PHONE_APP, PHONE_CALLBACK, App, Person
from tests.consenting import allow_code
from tests.openapi import check_answer
from tests.redis_users import find_refusals
from tests.servers import CHECKOUT, RedisServer, start_redis, stop

SEED = CHECKOUT / "tests" / "seed.yaml"
SECRET_KEY = "a secret key of the tests of 32 bytes or more"

MakeSettings = Callable[..., Settings]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also run the tests marked long")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--all"):
        config.option.markexpr = ""


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


REAL_COST = hashing._argon2id, hashing.MEMORY_KIB, hashing.PASSES


def _set_cost(patch: pytest.MonkeyPatch, context: CryptContext, memory_kib: int, passes: int) -> None:
    patch.setattr(hashing, "_argon2id", context)
    patch.setattr(hashing, "MEMORY_KIB", memory_kib)
    patch.setattr(hashing, "PASSES", passes)


@pytest.fixture(scope="session", autouse=True)
def quick_hashes() -> Iterator[None]:
    """In this process hashes of passwords cost as little as argon2 allows: most tests are about something else."""
    with pytest.MonkeyPatch.context() as patch:
        _set_cost(patch, hashing._argon2id.copy(argon2__memory_cost=64, argon2__time_cost=1), 64, 1)
        yield


@pytest.fixture
def real_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes cost what they cost the service, for tests about just that."""
    _set_cost(monkeypatch, *REAL_COST)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One real server for the whole run; use `store` to get it empty. Nobody wants more of it than was granted."""
    server = start_redis(tmp_path_factory.mktemp("redis"))
    yield server
    with server.connect() as client:
        refusals = find_refusals(client, ("service", "console"))
    stop(server.process)

    assert not refusals


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A plain client to look into the server, which holds nothing yet."""
    client = redis_server.connect()
    client.flushall()
    yield client
    client.close()


class Clock:
    """Time for the service and for Redis alike: scripts get an offset, and every key comes closer to its end."""

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


def environment_of(server: RedisServer, **variables: str) -> dict[str, str]:
    """The environment of a service on this server, as the user that is meant for it, with the cast as its seed."""
    return {
        "REDIS_URL": server.url_of("service"),
        "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY,
        "TOKEN_SERVICE_SEED_FILE": str(SEED),
        "LOG_LEVEL": "warning",
    } | variables


@pytest.fixture
def make_settings(redis_server: RedisServer) -> MakeSettings:
    """Settings for the test's server; keyword arguments are environment variables."""

    def make(**variables: str) -> Settings:
        return load_settings(environment_of(redis_server, **variables))

    return make


@pytest.fixture(scope="session")
def registry_dump(redis_server: RedisServer) -> Mapping[bytes, bytes]:
    """Every key that seeding the cast leaves, as Redis dumps it."""
    raw = redis.Redis(port=redis_server.port)
    raw.flushall()
    asyncio.run(_seed(load_settings(environment_of(redis_server))))
    dump = {key: raw.dump(key) or b"" for key in raw.scan_iter() if raw.ttl(key) < 0}
    raw.close()
    return dump


async def _seed(settings: Settings) -> None:
    parts = Parts(settings, lambda: 0)
    await parts.apply_seed()
    await parts.close()


@pytest.fixture
def own_redis(tmp_path: Path, registry_dump: Mapping[bytes, bytes]) -> Iterator[RedisServer]:
    """A server that the test may stop, with the cast registered."""
    server = start_redis(tmp_path)
    with redis.Redis(port=server.port) as raw:
        for key, value in registry_dump.items():
            raw.restore(key, 0, value)
    yield server
    server.process.send_signal(signal.SIGCONT)
    stop(server.process)


@pytest.fixture
def registry(registry_dump: Mapping[bytes, bytes], redis_server: RedisServer, store: redis.Redis) -> None:
    """The cast is registered."""
    raw = redis.Redis(port=redis_server.port)
    pipeline = raw.pipeline(transaction=False)
    for key, value in registry_dump.items():
        pipeline.restore(key, 0, value)
    pipeline.execute()
    raw.close()


@pytest.fixture
async def parts(
    make_settings: MakeSettings, redis_server: RedisServer, clock: Clock, registry: None
) -> AsyncIterator[Parts]:
    """The service's parts with the default settings and all rights, for tests below HTTP and to make codes."""
    parts = Parts(make_settings(REDIS_URL=redis_server.url), lambda: clock.offset_ms)
    yield parts
    await parts.close()


@pytest.fixture
async def http(make_settings: MakeSettings, clock: Clock, registry: None) -> AsyncIterator[httpx2.AsyncClient]:
    """The service with the default settings."""
    async with serving(make_settings(), clock) as client:
        yield client


@pytest.fixture
def json_logs() -> Iterator[io.StringIO]:
    """At level debug, as an operator would have them while looking for a fault."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configure_logging("debug", "json")
    written = io.StringIO()
    for handler in root.handlers:
        if type(handler) is logging.StreamHandler:
            handler.setStream(written)
    yield written
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("uvicorn.access").disabled = False
    structlog.reset_defaults()


@asynccontextmanager
async def serving(
    settings: Settings, clock: Clock, *, address: str = "203.0.113.7"
) -> AsyncIterator[httpx2.AsyncClient]:
    """The service in this process, with settings of the test's own; `address` is where the caller seems to be.

    Each of its answers must be one that docs/openapi.yaml describes.
    """
    app = assemble(Parts(settings, lambda: clock.offset_ms))
    async with lifespan_of(app), client_of(app, address) as client:
        yield client


def client_of(app: ASGIApp, address: str = "203.0.113.7") -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False, client=(address, 50_000))
    hooks = {"response": [_check_described]}
    return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", event_hooks=hooks)


async def _check_described(response: httpx2.Response) -> None:
    await response.aread()
    check_answer(response)


@asynccontextmanager
async def lifespan_of(app: ASGIApp) -> AsyncIterator[None]:
    """Starts and ends an application as a server would."""
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
    parts: Parts,
    person: Person = ALICE,
    app: App = PHONE_APP,
    *,
    redirect_uri: str = PHONE_CALLBACK,
    scope: str = "realm:main role:enduser",
    code_challenge: str | None = None,
) -> str:
    """An authorization code as the consent page would hand it out; users of other realms need no record here."""
    user = await parts.registry.find_user(identify_user(person.realm, person.username))
    user = user or User(realm=person.realm, username=person.username)
    code = AuthorizationCode(
        subject=user.identity.subject,
        username=user.username,
        client_id=app.client_id,
        redirect_uri=redirect_uri,
        scope=scope,
        code_challenge=code_challenge,
    )
    name = await allow_code(parts.browser_sessions, parts.consents, parts.keyring, user, code)
    return name.text
