"""I5: nothing in Redis, and nothing that is sent to Redis, can be presented as a token, code, secret or password."""

import io
import re
import threading
from base64 import urlsafe_b64encode
from typing import Any

import msgspec
import pytest
import redis

from service.registry.seed_file.read import load_seed, parse_seed
from service.worker import Worker
from tests.conftest import SECRET_KEY, SEED
from tests.invariants.dumps import dump_everything, find_secrets, spellings
from tests.invariants.operations import Operations
from tests.support.at_rest import read_everything
from tests.support.clients_and_users import PHONE_APP, PHONE_CALLBACK, assert_error, revoke_all
from tests.support.events import events_of
from tests.support.redis_monitor import ONE_SERVER
from tests.support.servers import RedisServer
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

PROVIDER_SECRET = "secret-at-the-organisation"
REALM = f'realms: {{cep: {{client_id: us, client_secret: {PROVIDER_SECRET}, issuer: "https://login.example.org"}}}}'
LAST_WORDS = "nothing comes after this"


def test_the_search_finds_every_spelling() -> None:
    token = "tsrt1_0a3" + urlsafe_b64encode(bytes(range(100, 139))).decode()
    family_id = bytes(range(103, 119))

    for spelling in spellings(token):
        assert find_secrets(b"x" + spelling + b"y", [token, "other"]) == {token}
    assert find_secrets(family_id.hex().encode(), [token]) == {token}
    assert find_secrets(b"harmless", [token]) == set()


@pytest.mark.clause(
    "decided-i5-nothing-presentable-at-rest",
    "6749-10.3-confidential-in-storage",
    "6819-4.3.4-client-secrets-from-redis",
    "6819-4.4.1.2-codes-from-redis",
)
@pytest.mark.clause("6749-10.4-confidential-in-storage", "6819-5.1.4.1.3-no-clear-text", "decided-seed-secrets-hashed")
async def test_after_each_operation_redis_holds_nothing_presentable(operations: Operations, store: redis.Redis) -> None:
    await operations.worker.seeding.apply(load_seed(SEED, 8))
    await operations.worker.seeding.apply(parse_seed(REALM.encode()))
    operations.presentable |= {SECRET_KEY, PROVIDER_SECRET}
    async for operation in operations.run_all():
        assert find_secrets(dump_everything(store), operations.presentable) == set(), operation

    assert len(operations.presentable) > 60


@pytest.mark.clause(
    "decided-i5-nothing-presentable-at-rest",
    "6749-10.4-confidential-in-storage",
    "6819-4.3.2-access-tokens-from-redis",
    "6819-4.5.2-refresh-tokens-from-redis",
)
async def test_nothing_that_redis_holds_is_accepted_as_a_token(operations: Operations, store: redis.Redis) -> None:
    async for _ in operations.run_all():
        pass
    words = {word for text in read_everything(store) for word in re.split("[\n: ]", text)}
    candidates = [word for word in words if len(word) >= 20 and word.isascii() and word.isprintable()]

    assert len(candidates) > 20
    for candidate in candidates:
        for text in (candidate, f"tsat1_{candidate}"[:53]):
            assert_error(await revoke_all(operations.http, text), 401, "invalid_token")
        for text in (candidate, f"tsrt1_{candidate}"[:61]):
            assert_error(await PHONE_APP.refresh(operations.http, text), 400, "invalid_grant")
        assert_error(await PHONE_APP.exchange(operations.http, candidate, PHONE_CALLBACK), 400, "invalid_grant")


class Monitor:
    """The commands that Redis gets, recorded by a thread."""

    def __init__(self, server: RedisServer) -> None:
        self._client: Any = redis.Redis(port=server.port)
        self._commands: list[bytes] = []
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._listening.wait(MAX_WAIT_SECONDS)

    def stop(self) -> bytes:
        """Everything up to now."""
        with redis.Redis(port=self._client.connection_pool.connection_kwargs["port"]) as last:
            last.echo(LAST_WORDS)
        wait_until(lambda: not self._thread.is_alive(), "the end of MONITOR")
        self._client.close()
        return b"\n".join(self._commands)

    def _listen(self) -> None:
        with self._client.monitor() as monitor:
            self._listening.set()
            for command in monitor.listen():
                self._commands.append(str(command["command"]).encode())
                if LAST_WORDS in str(command["command"]):
                    return


@pytest.mark.clause("decided-i5-nothing-presentable-at-rest")
@ONE_SERVER
async def test_nothing_presentable_is_ever_sent_to_redis(
    operations: Operations, redis_server: RedisServer, worker: Worker
) -> None:
    """Someone who watches the traffic with MONITOR sees digests and hashes, no token and no password."""
    monitor = Monitor(redis_server)
    monitor.start()
    await worker.seeding.apply(load_seed(SEED, 8))
    await worker.seeding.apply(parse_seed(REALM.encode()))
    async for _ in operations.run_all():
        pass
    sent = monitor.stop()

    assert sent.count(b"EVALSHA") > 20
    assert find_secrets(sent, operations.presentable | {SECRET_KEY, PROVIDER_SECRET}) == set()


@pytest.mark.clause("decided-no-secret-in-events")
async def test_no_security_event_holds_anything_presentable(operations: Operations, json_logs: io.StringIO) -> None:
    async for _ in operations.run_all():
        pass
    told = events_of(json_logs)

    assert len({event for event, _ in told}) > 12
    assert find_secrets(msgspec.json.encode(told), operations.presentable) == set()
