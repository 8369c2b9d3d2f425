"""The commands that are sent while a slot moves, with TRYAGAIN and ASK for as long as a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from service.redis_client.deadline import StoreUnavailable
from service.redis_client.durability import DISK, MEMORY, Durability
from service.redis_client.durable_writes import MAX_LEASED
from service.redis_client.slots import SlotIsMoving, get_slot, list_unsettled, parse_own_slots
from service.redis_client.url import parse_redis_url
from service.store.client import StoreClient
from service.store.scripts import load_script
from tests.redis_client.scripted_cluster import ScriptedCluster, array, key_of, moved, scripted_cluster
from tests.redis_client.scripted_redis import ScriptedRedis, bulk
from tests.support.loop_time import LoopTime
from tests.support.waiting import until

TRY_AGAIN = b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
ENDED = array(bulk(b"ended"))
DERIVES, DERIVES_NOTHING = load_script("end_family"), load_script("probe_store")
ON_DISK = {b"appendonly": b"yes", b"appendfsync": b"always", b"no-appendfsync-on-rewrite": b"no"}
ARGUMENTS: list[str | int] = ["digest", "client", "revoked", 0]

pytestmark = pytest.mark.clause("decided-redis-cluster")


class MovingCluster:
    """Two nodes of a cluster. `say` is the source's answer to scripts, and the target runs all that it gets."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.source, self.target = cluster.nodes
        self.key = key_of(cluster.make_token(self.source)).decode()
        self.say: list[bytes] = []
        self.asked_at: list[float] = []
        self.refusals = 0
        for node in cluster.nodes:
            node.answer = self._answering(node, node.answer)

    def refuse(self) -> None:
        self.refusals += 1

    @asynccontextmanager
    async def connect(self, durability: Durability = MEMORY) -> AsyncIterator[StoreClient]:
        url = parse_redis_url(self.cluster.url)
        connection = StoreClient(url, durability=durability, on_moving_slot=self.refuse)
        await connection.read("GET", self.key)
        try:
            yield connection
        finally:
            await connection.close()

    def ask(self, *, is_over: bool = False) -> bytes:
        return moved(self.key.encode(), self.target, b"MOVED" if is_over else b"ASK")

    def _answering(self, node: ScriptedRedis, usual: Callable[[list[bytes]], bytes]) -> Callable[[list[bytes]], bytes]:
        def answer(command: list[bytes]) -> bytes:
            if command[:2] == [b"CONFIG", b"GET"]:
                return b"%1\r\n" + bulk(command[2]) + bulk(ON_DISK[command[2]])
            if command[0] != b"EVALSHA":
                return usual(command)
            if command[3] != self.key.encode():
                return ENDED
            if node is self.target:
                return ENDED
            self.asked_at.append(asyncio.get_running_loop().time())
            said = self.say.pop(0) if len(self.say) > 1 else self.say[0]
            if said.startswith(b"-MOVED"):
                self.cluster.share(self.target)
            return said

        return answer


@pytest.fixture
async def moving() -> AsyncIterator[MovingCluster]:
    async with scripted_cluster(2) as cluster:
        yield MovingCluster(cluster)


async def test_a_script_that_derives_keys_waits_until_its_slot_has_moved(moving: MovingCluster) -> None:
    """The node that the slot moves to would have only some of the keys."""
    moving.say = [moving.ask(), TRY_AGAIN, moving.ask(), moving.ask(is_over=True)]

    async with moving.connect() as connection:
        assert await connection.run(DERIVES, [moving.key], ARGUMENTS) == ["ended"]

    assert (moving.refusals, moving.target.count("ASKING")) == (3, 0)


async def test_a_script_that_names_all_its_keys_goes_where_they_go(moving: MovingCluster) -> None:
    moving.say = [moving.ask()]

    async with moving.connect() as connection:
        assert await connection.run(DERIVES_NOTHING, [moving.key], []) == ["ended"]

    assert (moving.refusals, moving.target.count("ASKING")) == (0, 1)


async def test_those_who_wait_for_a_slot_hold_no_connections_that_others_need(
    moving: MovingCluster, held_time: LoopTime
) -> None:
    moving.say = [TRY_AGAIN]
    shards = (f"{number:03x}" for number in range(4096))
    others = (key for shard in shards if (key := f"family:{{{shard}}}:x") and shard not in moving.key)
    other = next(key for key in others if moving.cluster.find_owner(key.encode()) is moving.source)

    async def change(connection: StoreClient, key: str) -> list[str | int]:
        async with connection.durable(key.partition("{")[2].partition("}")[0]) as scripts:
            return await scripts.run(DERIVES, [key], ARGUMENTS)

    async with moving.connect(DISK) as connection:
        waiting = [asyncio.create_task(change(connection, moving.key)) for _ in range(2 * MAX_LEASED)]
        await until(lambda: moving.refusals > MAX_LEASED)
        served = asyncio.create_task(change(connection, other))
        await until(served.done, "the change of another slot, while time stands still")
        assert await served == ["ended"]
        outcomes = await held_time.advance_until_done(asyncio.gather(*waiting, return_exceptions=True))

    # An attempt may be on its way when the time is over. Its result is unknown, so it is not reported as SlotIsMoving.
    assert {SlotIsMoving} <= {type(outcome) for outcome in outcomes} <= {SlotIsMoving, StoreUnavailable}


def test_slots_that_moved_or_are_moving_are_unsettled() -> None:
    lines = {
        "before": b"a 10.0.0.1:1@2 myself,master - 0 0 1 connected 0-10 12 [7->-b]\n",
        "after": b"a 10.0.0.1:1@2 myself,master - 0 0 1 connected 0-6 8-9 12 [3-<-b]\n",
    }
    before, after = (parse_own_slots(line) for line in lines.values())

    assert before.slots == {*range(11), 12}
    assert list_unsettled([before], [before]) == {7}
    assert list_unsettled([before], [after]) == {3, 7, 10}
    assert list_unsettled([after], [after._replace(node="b", arriving=frozenset())]) == {*range(7), 8, 9, 12}
    assert list(map(set, (before.leaving, before.arriving, after.leaving, after.arriving))) == [{7}, set(), set(), {3}]


@given(st.text() | st.text("{}ab", max_size=8))
def test_a_key_has_the_slot_that_redis_py_computes(key: str) -> None:
    assert get_slot(key) == key_slot(key.encode())
