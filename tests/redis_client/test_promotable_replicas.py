"""The replicas that Sentinels could promote, of which each must confirm a durable write."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from service.redis_client.connection import ASK_SECONDS
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.sentinels import SURVEY_PAUSE_SECONDS, Sentinels
from service.redis_client.url import Durability, RedisUrl, parse_redis_url
from service.store.client import StoreClient
from tests.redis_client.scripted_cluster import array
from tests.redis_client.scripted_redis import ScriptedRedis, bulk, scripted_redis
from tests.redis_client.settled_time import SettledTime

pytestmark = pytest.mark.clause("decided-durability", "decided-redis-sentinel")

MASTER = ("127.0.0.1", 7000)
REPLICAS = ("slave", "slave")


@pytest.fixture
async def scripted() -> AsyncIterator[list[ScriptedRedis]]:
    """Three Sentinels that name the same master with two replicas."""
    async with AsyncExitStack() as stack:
        sentinels = [await stack.enter_async_context(scripted_redis()) for _ in range(3)]
        for sentinel in sentinels:
            report(sentinel)
        yield sentinels


def report(
    sentinel: ScriptedRedis,
    replicas: Sequence[str] = REPLICAS,
    master: str = "master",
    priority: int = 100,
    port: int = 7000,
    link_down_ms: int = 0,
) -> None:
    """Let the Sentinel report these flags of the master and its replicas.

    Further flags are `old_master`, of which it knows no priority, and `promoted`. Both report that they are masters.
    """
    masters = array(describe(master, port, 100, 0))
    slaves = array(*(describe(flags, 7001 + number, priority, link_down_ms) for number, flags in enumerate(replicas)))
    sentinel.answer = lambda command: masters if command[1].upper() == b"MASTERS" else slaves


def describe(flags: str, port: int, priority: int, link_down_ms: int) -> bytes:
    name = "tokens" if flags.startswith("master") else f"127.0.0.1:{port}"
    is_old = "old_master" in flags
    numbers = {"master-link-down-time": link_down_ms, "down-after-milliseconds": 1000}
    numbers["slave-priority"] = 100 if is_old else priority
    fields = {"name": name, "ip": "127.0.0.1", "port": str(port), "flags": flags}
    fields |= {field: str(number) for field, number in numbers.items()}
    fields["role-reported"] = "master" if is_old or "promoted" in flags else "slave"
    fields["master-host"] = "?" if is_old else "127.0.0.1"
    return array(*(bulk(word.encode()) for field in fields.items() for word in field))


def url_of(scripted: Sequence[ScriptedRedis]) -> RedisUrl:
    nodes = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in scripted)
    return parse_redis_url(f"redis+sentinel://{nodes}/tokens")


async def count(settled_time: SettledTime, scripted: Sequence[ScriptedRedis], seconds: float = ASK_SECONDS) -> int:
    sentinels = Sentinels(url_of(scripted))
    try:
        return len(await settled_time.run(sentinels.list_promotable(MASTER), 2 * seconds))
    finally:
        await sentinels.close()


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([REPLICAS] * 3, 2),
        ([()] * 3, 0),
        ([("slave", "slave,s_down")] * 3, 1),
        ([("slave,o_down,s_down", "slave,s_down")] * 3, 0),
        ([("slave", "slave,disconnected")] * 3, 2),
        ([("slave", "slave,s_down"), ("slave", "slave,s_down"), REPLICAS], 2),
        ([("slave",), ("slave",), REPLICAS], 2),
        ([("slave", "slave,old_master")] * 3, 1),
        ([("slave,old_master",)] * 3, 1),
        ([("slave,s_down", "slave,old_master")] * 3, 1),
        ([("slave", "slave,old_master"), ("slave", "slave,old_master"), REPLICAS], 2),
        ([("slave", "slave,promoted")] * 3, 2),
    ],
)
async def test_a_replica_counts_until_all_report_it_down(
    settled_time: SettledTime, scripted: list[ScriptedRedis], reports: list[Sequence[str]], expected: int
) -> None:
    for sentinel, replicas in zip(scripted, reports, strict=True):
        report(sentinel, replicas)

    assert await count(settled_time, scripted) == expected


@pytest.mark.parametrize(
    ("field", "value", "expected"), [("priority", 0, 0), ("link_down_ms", 10_001, 0), ("link_down_ms", 10_000, 2)]
)
async def test_a_replica_that_is_never_promoted_does_not_count(
    settled_time: SettledTime, scripted: list[ScriptedRedis], field: str, value: int, expected: int
) -> None:
    """Sentinel promotes no replica that has not followed its master for ten times `down-after-milliseconds`."""
    for sentinel in scripted:
        report(sentinel, **cast("dict[str, Any]", {field: value}))

    assert await count(settled_time, scripted) == expected


@pytest.mark.parametrize(("priority", "expected"), [(99, 1), (100, 1), (101, 2)])
async def test_old_master_counts_if_it_would_be_promoted(
    settled_time: SettledTime, scripted: list[ScriptedRedis], priority: int, expected: int
) -> None:
    """Sentinel promotes the replica with the least priority, and takes 100 for one that it does not know."""
    for sentinel in scripted:
        report(sentinel, ["slave", "slave,old_master"], priority=priority)

    assert await count(settled_time, scripted) == expected


@pytest.mark.parametrize(
    ("flags", "port"), [("master,failover_in_progress", 7000), ("master", 7001)], ids=["failover", "two masters"]
)
async def test_nothing_is_confirmed_during_a_switch(
    settled_time: SettledTime, scripted: list[ScriptedRedis], flags: str, port: int
) -> None:
    report(scripted[1], master=flags, port=port)

    with pytest.raises(StoreUnavailable, match="changing the master"):
        await count(settled_time, scripted)


async def test_nothing_is_confirmed_for_another_master(
    settled_time: SettledTime, scripted: list[ScriptedRedis]
) -> None:
    for sentinel in scripted:
        report(sentinel, port=7001)

    with pytest.raises(StoreUnavailable, match="different master"):
        await count(settled_time, scripted)


async def test_more_than_half_of_the_sentinels_must_report(
    settled_time: SettledTime, scripted: list[ScriptedRedis]
) -> None:
    scripted[0].mute()
    assert await count(settled_time, scripted) == 2

    report(scripted[1], master="master,s_down")
    with pytest.raises(StoreUnavailable, match="1 of 3 Sentinels"):
        await count(settled_time, scripted)


async def test_silent_sentinel_does_not_delay_the_others(
    settled_time: SettledTime, scripted: list[ScriptedRedis]
) -> None:
    """The others answer later than the pause that follows a majority, and far earlier than a query may take."""
    scripted[0].mute()
    for sentinel in scripted[1:]:
        sentinel.delay = lambda command: 1.5 * SURVEY_PAUSE_SECONDS if command[1:2] == [b"MASTERS"] else 0

    assert await count(settled_time, scripted, 2 * SURVEY_PAUSE_SECONDS) == 2


async def test_a_write_waits_until_the_promotable_replica_has_it(scripted: list[ScriptedRedis]) -> None:
    """WAIT only counts. Here a replica that is never promoted confirms first, and the Sentinels do not list it."""
    offsets = iter([99, 99, 100])

    def answer(command: list[bytes]) -> bytes:
        if command[0] == b"INFO":
            replica = b"slave0:ip=127.0.0.1,port=7001,state=online,offset=%d,lag=0" % next(offsets)
            return bulk(b"master_repl_offset:100\r\n" + replica)
        return b":1\r\n" if command[0] == b"WAIT" else array(bulk(b"left"))

    async with scripted_redis() as master:
        master.answer = answer
        for sentinel in scripted:
            report(sentinel, ["slave"], port=master.port)
        connection = StoreClient(url_of(scripted), durability=Durability("replica"))
        async with connection.durable("0a3") as durable:
            await durable.leave_fence()
        await connection.close()

        assert master.count("WAIT") == 2
