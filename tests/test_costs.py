"""The cost of a request: the number of its commands, the work of its script, and bytes of Redis.

The numbers are those of today. A number that falls is lowered here by the change that makes it fall, and one that rises
needs a reason. `scripts/bench` measures processor time.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.conftest import Clock, make_code
from tests.support.clients_and_users import ALICE, GATEWAY, PHONE_APP, PHONE_CALLBACK, revoke_all, tokens_of, verify
from tests.support.redis_monitor import ONE_SERVER
from tests.support.servers import ALLOCATOR_BYTES

pytestmark = ONE_SERVER

MAX_BYTES_PER_SESSION = 696
"""The bytes of its three keys, as Redis 7 counts them, without their entries in Redis' tables of keys."""
MAX_BYTES_WITH_TEN_TOKENS = 3344
"""The same for a session that was refreshed nine times within the lifetime of an access token."""
CHAIN = 120
"""More refreshes than a session has access tokens."""
ROTATIONS = 30
"""So many that a few bytes that each left behind would exceed ALLOCATOR_BYTES."""


_LAST_COMMAND = "the end of the watch"
_OF_CONNECTIONS = ("TIME", "HELLO", "CLIENT SETINFO")


class CommandCounts(NamedTuple):
    """The commands sent to Redis, and those that scripts ran, each counted by its first word."""

    sent: Counter[str]
    ran: Counter[str]


@contextmanager
def counting_commands(store: redis.Redis) -> Iterator[CommandCounts]:
    """Count commands until the block ends, without those that connections send by themselves."""
    counts = CommandCounts(Counter(), Counter())
    with store.monitor() as monitor:  # type: ignore[no-untyped-call]
        yield counts
        store.echo(_LAST_COMMAND)
        while _LAST_COMMAND not in (line := monitor.next_command())["command"]:
            word = line["command"].split()[0].upper()
            if line["client_type"] == "lua":
                counts.ran[word] += 1
            elif not line["command"].upper().startswith(_OF_CONNECTIONS):
                counts.sent[word] += 1


class Session(NamedTuple):
    access_token: str
    refresh_token: str
    code: str
    """The code of another session, which is about to begin."""


Operation = Callable[[httpx2.AsyncClient, Session], Awaitable[httpx2.Response]]

OPERATIONS: dict[str, Operation] = {
    "exchange": lambda http, session: PHONE_APP.exchange(http, session.code, PHONE_CALLBACK),
    "refresh": lambda http, session: PHONE_APP.refresh(http, session.refresh_token),
    "verify": lambda http, session: verify(http, session.access_token),
    "introspect": lambda http, session: GATEWAY.introspect(http, session.access_token),
    "revoke a session": lambda http, session: PHONE_APP.revoke(http, session.refresh_token),
    "revoke an access token": lambda http, session: PHONE_APP.revoke(http, session.access_token),
    "revokeAll": lambda http, session: revoke_all(http, session.access_token),
    "password": lambda http, _: PHONE_APP.log_in(http, ALICE),
}

COSTS = {
    "exchange": ({"MGET": 1, "EVALSHA": 1}, 14),
    "refresh": ({"EVALSHA": 1}, 5),
    "verify": ({"GET": 1}, 0),
    "introspect": ({"GET": 1}, 0),
    "revoke a session": ({"EVALSHA": 1}, 7),
    "revoke an access token": ({"EVALSHA": 1}, 2),
    "revokeAll": ({"GET": 1, "EVALSHA": 2}, 28),
    "password": ({"HMGET": 1, "EVALSHA": 5}, 21),
}
"""The commands that each operation sends, and how many commands its scripts run."""


async def begin_session(http: httpx2.AsyncClient, worker: Worker) -> Session:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    return Session(tokens["access_token"], tokens["refresh_token"], await make_code(worker))


@pytest.mark.parametrize("name", OPERATIONS)
async def test_redis_commands_do_not_increase(
    http: httpx2.AsyncClient, http_worker: Worker, worker: Worker, store: redis.Redis, name: str
) -> None:
    # Redis is otherwise asked for room for a secret once a second.
    http_worker.authenticator.admitted_seconds = 3600
    operation = OPERATIONS[name]
    for _ in range(3):
        # Now clients and users are cached, and Redis knows the scripts.
        assert (await operation(http, await begin_session(http, worker))).status_code == 200
    session = await begin_session(http, worker)
    with counting_commands(store) as counts:
        response = await operation(http, session)
    assert response.status_code == 200, response.text
    assert (counts.sent, counts.ran.total()) == COSTS[name]


def weigh(store: redis.Redis) -> int:
    """Return the bytes of all keys that expire, each with its value, as Redis counts them."""
    return sum(store.memory_usage(key, samples=0) or 0 for key in store.scan_iter(count=1000) if store.ttl(key) >= 0)


async def test_session_memory_does_not_increase(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    await PHONE_APP.log_in(http, ALICE)
    assert weigh(store) <= MAX_BYTES_PER_SESSION


async def test_rotations_do_not_accumulate_memory(http: httpx2.AsyncClient, store: redis.Redis, clock: Clock) -> None:
    refresh_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
    weights = []
    for _ in range(ROTATIONS):
        clock.advance(86_400)
        refresh_token = tokens_of(await PHONE_APP.refresh(http, refresh_token))["refresh_token"]
        weights.append(weigh(store))
    assert max(weights) - min(weights) <= ALLOCATOR_BYTES


async def test_memory_of_ten_tokens_does_not_increase(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    refresh_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
    for _ in range(9):
        refresh_token = tokens_of(await PHONE_APP.refresh(http, refresh_token))["refresh_token"]
    assert weigh(store) <= MAX_BYTES_WITH_TEN_TOKENS


async def test_a_long_chain_asks_redis_for_one_command_more(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    """From the hundredth refresh within the grace on, each deletes an access token."""
    refresh_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
    for _ in range(CHAIN):
        refresh_token = tokens_of(await PHONE_APP.refresh(http, refresh_token))["refresh_token"]
    with counting_commands(store) as counts:
        await PHONE_APP.refresh(http, refresh_token)
    sent, ran = COSTS["refresh"]
    assert (counts.sent, counts.ran.total(), counts.ran["DEL"]) == (sent, ran + 1, 1)
