"""A Redis that can be killed, frozen and filled, a network that can be cut, and the service on both."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import redis

from service.config.settings import load_settings
from service.crypto.keyring import Keyring, make_access_token, make_first_refresh_token
from service.protocol.client import Client
from service.protocol.user import User, identify_user
from service.store.client import load_script
from service.store.keys import ended_key, family_key
from service.store.records import FamilyRecord, parse_family
from service.worker import Worker
from tests.conftest import SECRET_KEY, environment_of
from tests.faults.proxy import Proxy, running_proxy
from tests.support.clients_and_users import access_key_of
from tests.support.logins import login_of
from tests.support.loop_time import LoopTime
from tests.support.servers import CHECKOUT, RedisServer, ServiceProcess, start_redis, stop
from tests.support.waiting import MAX_WAIT_SECONDS

STORE = CHECKOUT / "service" / "store"
PLENTY = "1000000/minute"
# Answered writes are in the file and outlive the process. With `everysec` a write would wait for a slow fsync.
KEEPS_DATA = ("--appendonly", "yes", "--appendfsync", "no")
KEYRING = Keyring((SECRET_KEY.encode(),))
SESSIONS_AT_ONCE = 500
LATEST_SECONDS = 2.0
"""The time limit for the answer of every request that needs Redis."""


Session = tuple[str, str]
"""An access token and its refresh token."""


class Deployment:
    """A Redis, a proxy in front of it, and two services: `proxied_service` connects through the proxy."""

    def __init__(self, folder: Path, *options: str, binary: str | None = None) -> None:
        self.folder = folder
        self._binary = binary
        self.redis: RedisServer = start_redis(folder, *KEEPS_DATA, *options, binary=binary)
        self.store: redis.Redis = self.redis.connect()
        self.proxy: Proxy
        self.direct_service: ServiceProcess
        self.proxied_service: ServiceProcess

    def environment(self, **variables: str) -> dict[str, str]:
        limits = {
            "TOKEN_SERVICE_LOGIN_ATTEMPTS": PLENTY,
            "TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER": PLENTY,
            "TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS": PLENTY,
        }
        return environment_of(self.redis, **limits) | variables

    def clear(self) -> None:
        """Forgets all but the registry, which alone lives for good, and teaches Redis the scripts."""
        for key in self.store.scan_iter(count=1000):
            if self.store.ttl(key) >= 0:
                self.store.delete(key)
        for file in STORE.rglob("*.lua"):
            if "-- RETURNS" in file.read_text():
                self.store.script_load(load_script(str(file.relative_to(STORE).with_suffix(""))).text)

    def restart_redis(self) -> None:
        """Start Redis with the same data. It has forgotten the scripts."""
        self.redis = start_redis(self.folder, *KEEPS_DATA, port=self.redis.port, binary=self._binary)

    def close(self) -> None:
        self.store.close()
        stop(self.redis.process)

    @contextmanager
    def killed(self) -> Iterator[None]:
        self.redis.kill()
        try:
            yield
        finally:
            self.restart_redis()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        with self.redis.frozen():
            yield

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        self.proxy.held = True
        try:
            yield
        finally:
            self.proxy.held = False

    @contextmanager
    def full(self) -> Iterator[None]:
        self.store.config_set("maxmemory", self.store.info("memory")["used_memory"] // 2)
        try:
            yield
        finally:
            self.store.config_set("maxmemory", 0)

    def knows_access_token(self, access_token: str) -> bool:
        return self.find_access_token(access_token) is not None

    def find_access_token(self, access_token: str) -> list[str] | None:
        """The lines of the record: version, issued, expires, family, client_id, subject, username, scope."""
        record = self.store.get(access_key_of(access_token))
        return None if record is None else str(record).split("\n")

    def find_family(self, refresh_token: str) -> FamilyRecord | None:
        name = KEYRING.parse_refresh_token(refresh_token)
        assert name is not None
        record: Any = self.store.get(family_key(name.shard, name.family_digest))
        return None if record is None else parse_family(record.encode())

    def find_ending(self, refresh_token: str) -> str | None:
        """Why the family ended, as its tombstone says it."""
        name = KEYRING.parse_refresh_token(refresh_token)
        assert name is not None
        tombstone = self.store.get(ended_key(name.shard, name.family_digest))
        return None if tombstone is None else str(tombstone).split("\n")[2]

    def count_calls(self, command: str) -> int:
        statistics: dict[str, dict[str, int]] = self.store.info("commandstats")
        return statistics.get(f"cmdstat_{command}", {"calls": 0})["calls"]


@contextmanager
def proxied_redis(folder: Path) -> Iterator[Deployment]:
    """Start Redis and the proxy in front of it, without a service, and stop both at the end."""
    deployment = Deployment(folder)
    try:
        with running_proxy(deployment.redis.port) as proxy:
            deployment.proxy = proxy
            yield deployment
    finally:
        deployment.close()


@asynccontextmanager
async def worker_on(deployment: Deployment) -> AsyncIterator[Worker]:
    settings = environment_of(deployment.redis, TOKEN_SERVICE_SESSIONS_PER_USER="2000")
    worker = Worker(load_settings(settings), lambda: 0)
    yield worker
    await worker.close()


async def start_session(worker: Worker, user: User, client_id: str = "phone-app") -> Session:
    """Start a session of a user, as a login does."""
    refresh_token = make_first_refresh_token(user.identity.shard)
    access_token = make_access_token(user.identity.shard)
    lives_ms = await worker.families.start(
        login_of(user),
        client=Client(client_id=client_id),
        scope="realm:main role:enduser",
        secret_used=False,
        refresh_token=refresh_token,
        access_token=access_token,
    )
    assert lives_ms is not None
    return access_token.text, KEYRING.sign_refresh_token(refresh_token)


async def start_sessions(worker: Worker, username: str, count: int, client_id: str = "phone-app") -> list[Session]:
    """Start sessions of a user without a record, as a login does."""
    user = User(realm="main", username=username, id=identify_user("main", username).digest)

    sessions: list[Session] = []
    while len(sessions) < count:
        missing = min(SESSIONS_AT_ONCE, count - len(sessions))
        sessions += await asyncio.gather(*(start_session(worker, user, client_id) for _ in range(missing)))
    return sessions


def http_client_for(service: ServiceProcess) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=400, max_keepalive_connections=400)
    return httpx2.AsyncClient(base_url=service.url, timeout=MAX_WAIT_SECONDS, limits=limits, verify=False)


async def ask_at_once(held_time: LoopTime, *requests: Awaitable[httpx2.Response]) -> list[httpx2.Response]:
    """Return the answers of a service in this event loop. Each must have come within two seconds of held time."""

    async def ask(request: Awaitable[httpx2.Response]) -> tuple[httpx2.Response, float]:
        asked = held_time.read()
        return await request, held_time.read() - asked

    asked = [asyncio.create_task(ask(request)) for request in requests]
    await asyncio.sleep(0)
    await held_time.advance_in_steps(LATEST_SECONDS)
    assert [task.done() for task in asked] == [True] * len(asked)
    answers = [task.result() for task in asked]
    assert max(seconds for _, seconds in answers) <= LATEST_SECONDS
    return [answer for answer, _ in answers]


def call_of(script: str) -> bytes:
    """Return the words of a command that calls the script by its SHA-1."""
    return b"EVALSHA\r\n$40\r\n" + load_script(script).sha1.encode()
