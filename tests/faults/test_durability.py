"""An answered write has reached a replica, or the disk, if the operator asked for that."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import redis

from service.app import build_app
from service.config.reading import BadSettings
from service.config.settings import load_settings
from service.protocol.user import identify_user
from service.redis_client.deadline import DEADLINE_SECONDS, StoreUnavailable
from service.redis_client.durable_writes import RESERVE_SECONDS
from service.store.keys import id_key, user_key
from service.worker import Worker
from tests.conftest import environment_of, http_client_for, make_code, running_lifespan
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    PHONE_APP,
    PHONE_CALLBACK,
    access_key_of,
    assert_error,
    put_user,
    revoke_all,
    revoke_user,
    tokens_of,
)
from tests.support.redis_monitor import recording_commands
from tests.support.servers import RedisServer, other_servers, start_redis, stop
from tests.support.waiting import MAX_WAIT_SECONDS, until, wait_until

CONTENDERS = 40
OF_ALICE = {"format": "email", "email": ALICE.username}


@pytest.fixture(scope="module")
def built_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, RedisServer]]:
    """A master and its replica. It is Valkey, where a connection waits for its own changes only, if there is one."""
    binary, delay = other_servers().get("valkey"), ("--repl-diskless-sync-delay", "0")
    master = start_redis(tmp_path_factory.mktemp("master"), *delay, binary=binary)
    replicated = ("--replicaof", "127.0.0.1", str(master.port))
    replica = start_redis(tmp_path_factory.mktemp("replica"), *replicated, binary=binary)
    yield master, replica
    for server in (replica, master):
        stop(server.process)


@pytest.fixture
def master(built_pair: tuple[RedisServer, RedisServer]) -> RedisServer:
    """Empty, its replica with it."""
    master, replica = built_pair
    with replica.connect() as client:
        wait_until(lambda: client.info("replication")["master_link_status"] == "up", "the replica")
    with master.connect() as client:
        client.flushall()
        assert client.wait(1, round(MAX_WAIT_SECONDS * 1000)) == 1
    return master


@pytest.fixture
def replica(built_pair: tuple[RedisServer, RedisServer]) -> RedisServer:
    return built_pair[1]


@asynccontextmanager
async def service_on(server: RedisServer, durability: str) -> AsyncIterator[tuple[Worker, httpx2.AsyncClient]]:
    worker = Worker(load_settings(environment_of(server, TOKEN_SERVICE_DURABILITY=durability)), lambda: 0)
    app = build_app(worker)
    async with running_lifespan(app), http_client_for(app) as http:
        yield worker, http


def knows(server: RedisServer, tokens: dict[str, str]) -> bool:
    with server.connect() as client:
        return bool(client.exists(access_key_of(tokens["access_token"])))


def read_name(server: RedisServer, username: str) -> str | None:
    """Return the name in the record of a user of realm main, or None if there is no record."""
    with server.connect() as client:
        record = client.hget(user_key(identify_user("main", username)), "record")
    return None if record is None else str(json.loads(str(record)).get("name", ""))


async def confirm(worker: Worker) -> None:
    async with worker.redis.durable("0a3") as scripts:
        await scripts.leave_fence()


def read_waits(commands: Sequence[str]) -> list[int]:
    """Return for how many milliseconds each WAIT was sent."""
    return [int(command.split()[2]) for command in commands if command.upper().startswith("WAIT ")]


@pytest.mark.clause("decided-durability")
async def test_answered_write_is_at_the_replica(master: RedisServer, replica: RedisServer) -> None:
    """Looked at with the answer in hand, many times, many at once."""
    async with service_on(master, "replica") as (worker, http):

        async def live() -> None:
            tokens = dict(tokens_of(await PHONE_APP.exchange(http, await make_code(worker), PHONE_CALLBACK)))
            assert knows(replica, tokens)
            assert (await PHONE_APP.revoke(http, tokens["refresh_token"])).status_code == 200
            assert not knows(replica, tokens)

        await asyncio.gather(*(live() for _ in range(CONTENDERS)))
        tokens = dict(tokens_of(await PHONE_APP.exchange(http, await make_code(worker), PHONE_CALLBACK)))
        assert (await revoke_all(http, tokens["access_token"])).status_code == 200
        assert not knows(replica, tokens)
        tokens = dict(tokens_of(await PHONE_APP.exchange(http, await make_code(worker), PHONE_CALLBACK)))
        assert (await revoke_user(http, OF_ALICE)).status_code == 204
        assert not knows(replica, tokens)


@pytest.mark.clause("decided-durability", "decided-redis-away")
async def test_without_a_replica_durable_changes_are_not_reported_done(
    master: RedisServer, replica: RedisServer
) -> None:
    async with service_on(master, "replica") as (worker, http):
        first = dict(tokens_of(await PHONE_APP.exchange(http, await make_code(worker), PHONE_CALLBACK)))
        second = dict(tokens_of(await PHONE_APP.exchange(http, await make_code(worker), PHONE_CALLBACK)))
        code = await make_code(worker, BOB)  # the revokeAll may come first, and ends the codes of Alice
        with replica.frozen(), master.connect() as client:
            with recording_commands(client) as commands:
                answers = await asyncio.gather(
                    PHONE_APP.exchange(http, code, PHONE_CALLBACK),
                    PHONE_APP.revoke(http, first["access_token"]),
                    PHONE_APP.revoke(http, first["refresh_token"]),
                    revoke_all(http, second["access_token"]),
                    revoke_user(http, OF_ALICE),
                )
            for answer in answers:
                assert_error(answer, 503, "temporarily_unavailable")
                assert answer.headers["retry-after"]
            # Each of the five ends within the time of a request, by Redis's clock.
            waits = read_waits(commands)
            assert len(waits) == len(answers)
            assert max(waits) <= (DEADLINE_SECONDS - RESERVE_SECONDS) * 1000
            # Requests without promised durability go on.
            assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
            assert (await http.get("/readyz")).status_code == 200


@pytest.mark.clause("decided-durability")
@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_retried_revocation_waits_for_confirmation(master: RedisServer, replica: RedisServer, kind: str) -> None:
    """It finds nothing to do any more, and yet a failover would bring the token back.

    The second instance has made no change itself.
    """
    async with service_on(master, "replica") as (worker, http), service_on(master, "replica") as (_, other):
        tokens = dict(tokens_of(await PHONE_APP.exchange(http, await make_code(worker), PHONE_CALLBACK)))
        with replica.frozen():
            assert_error(await PHONE_APP.revoke(http, tokens[kind]), 503, "temporarily_unavailable")
            assert not knows(master, tokens)
            for each in (http, other):
                assert_error(await PHONE_APP.revoke(each, tokens[kind]), 503, "temporarily_unavailable")

        assert (await PHONE_APP.revoke(http, tokens[kind])).status_code == 200
        assert not knows(replica, tokens)


@pytest.mark.clause("decided-durability")
async def test_answered_change_of_a_user_is_at_the_replica(master: RedisServer, replica: RedisServer) -> None:
    """The last request finds nothing to change any more, and yet a failover would undo the one before it."""
    async with service_on(master, "replica") as (_, http):

        async def create(username: str) -> None:
            body = {"password": "correct horse battery staple", "roles": ["enduser"]}
            assert (await put_user(http, username, body)).status_code == 201
            assert read_name(replica, username) is not None

        await asyncio.gather(*(create(f"user{number}@example.com") for number in range(8)))
        with replica.frozen():
            for _ in range(2):
                assert_error(await put_user(http, BOB.username, {"name": "Robert"}), 503, "temporarily_unavailable")
        assert (await put_user(http, BOB.username, {"name": "Robert"})).status_code == 200
        assert read_name(replica, BOB.username) == "Robert"


@pytest.mark.clause("decided-durability")
async def test_answered_rename_is_at_the_replica(master: RedisServer, replica: RedisServer) -> None:
    """A failover brings back neither the former name nor a session."""
    bob, body = identify_user("main", BOB.username), {"username": "robert@example.com"}
    async with service_on(master, "replica") as (worker, http):
        tokens = dict(tokens_of(await PHONE_APP.exchange(http, await make_code(worker, BOB), PHONE_CALLBACK)))
        with replica.frozen():
            for _ in range(2):
                assert_error(await put_user(http, BOB.username, body), 503, "temporarily_unavailable")
        assert (await put_user(http, BOB.username, body)).status_code == 200
        assert [read_name(replica, name) for name in (BOB.username, body["username"])] == [None, "Bob"]
        assert not knows(replica, tokens)
        with replica.connect() as client:
            assert client.get(id_key(bob.digest)) == identify_user("main", body["username"]).digest


@pytest.mark.clause("decided-durability")
async def test_cached_lookup_does_not_wait(master: RedisServer, replica: RedisServer) -> None:
    async with service_on(master, "memory") as (worker, http):
        with replica.frozen():
            tokens = dict(tokens_of(await PHONE_APP.exchange(http, await make_code(worker), PHONE_CALLBACK)))
            assert (await PHONE_APP.revoke(http, tokens["access_token"])).status_code == 200
            assert (await PHONE_APP.revoke(http, tokens["access_token"])).status_code == 200
        with master.connect() as client:
            assert not client.keys("fence:*")


@pytest.mark.clause("decided-durability")
async def test_waiting_connections_are_reused_or_closed(master: RedisServer, replica: RedisServer) -> None:
    """No call may get the late answer to another one."""

    def count(client: redis.Redis) -> int:
        return sum(each["name"] == "token-confirmations" for each in client.client_list())

    async with service_on(master, "replica") as (worker, _):
        with master.connect() as client:
            for _ in range(5):
                await confirm(worker)
            assert count(client) == 1
            with replica.frozen():
                waiting = asyncio.ensure_future(confirm(worker))
                await until(lambda: client.info("clients")["blocked_clients"] == 1)
                waiting.cancel()
                await asyncio.wait({waiting})
                await until(lambda: count(client) == 0)
            await confirm(worker)
            assert count(client) == 1


SAFE = {"--appendonly": "yes", "--appendfsync": "always", "--no-appendfsync-on-rewrite": "no"}


@pytest.mark.clause("decided-durability")
@pytest.mark.parametrize(
    "changed",
    [{}, {"--appendfsync": "everysec"}, {"--no-appendfsync-on-rewrite": "yes"}, {"--appendonly": "no"}],
    ids=["safe", "every second", "not while rewriting", "no file"],
)
async def test_answered_write_is_on_the_disk(tmp_path: Path, changed: dict[str, str]) -> None:
    """A server that syncs once a second answers before that; so does, at times, one that pauses while it rewrites."""
    server = start_redis(tmp_path, *(word for option in (SAFE | changed).items() for word in option))
    try:
        async with service_on(server, "memory") as (worker, _):
            code = await make_code(worker)
        async with service_on(server, "disk") as (worker, http):
            answer = await PHONE_APP.exchange(http, code, PHONE_CALLBACK)
            if changed:
                assert_error(answer, 503, "temporarily_unavailable")
                with pytest.raises(StoreUnavailable, match="appendfsync always"):
                    await confirm(worker)
            else:
                tokens = dict(tokens_of(answer))
                assert (await PHONE_APP.revoke(http, tokens["access_token"])).status_code == 200
    finally:
        stop(server.process)


@pytest.mark.clause("decided-durability")
async def test_as_many_replicas_as_named_must_confirm(master: RedisServer, replica: RedisServer) -> None:
    for durability, status in (("replica:1", 200), ("replica:2", 503)):
        async with service_on(master, durability) as (worker, http):
            answer = await PHONE_APP.exchange(http, await make_code(worker), PHONE_CALLBACK)

            assert answer.status_code == status


@pytest.mark.clause("decided-durability")
def test_the_embedded_store_has_no_replicas(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="the embedded store has no replicas"):
        load_settings({"TOKEN_SERVICE_DATA_DIR": str(tmp_path), "TOKEN_SERVICE_DURABILITY": "replica"})
