"""Each Lua script gives the same answer, and leaves the same keys, on a real server and on fakeredis."""

from random import Random
from typing import Final

import pytest
import redis

from service.redis_client.deadline import StoreUnavailable
from service.store.keys import family_key
from service.store.sessions.families import Spent
from tests.house.lua_headers import NAMES, read_script
from tests.lua.comparing import ComparingClient
from tests.lua.scenarios import GRACE_MS, SCENARIOS
from tests.lua.store_objects import SHARD, StoreObjects

pytestmark = pytest.mark.single_server("fakeredis is one server")

STEPS: Final = 200


@pytest.mark.parametrize("name", NAMES)
async def test_a_script_does_the_same_on_both_servers(comparing: ComparingClient, name: str) -> None:
    await SCENARIOS[name](comparing)

    assert {word for script, word in comparing.words if script == name} == read_script(name).words


async def test_both_servers_refuse_an_unknown_version(comparing: ComparingClient, store: redis.Redis) -> None:
    objects = StoreObjects(comparing)
    grant = await objects.must_start()
    store.set(family_key(SHARD, grant.first.family_digest), "3\nof another version", px=10_000)

    with pytest.raises(StoreUnavailable, match="UNREADABLE"):
        await objects.spend(grant, 1)


async def test_random_refreshes_do_the_same_on_both_servers(comparing: ComparingClient) -> None:
    """There are more than 100 generations, so that tokens leave the list and their times are thinned out."""
    random, objects = Random(1378), StoreObjects(comparing)
    grant, head, seen = await objects.must_start(), 1, set[tuple[str, bool]]()
    for _ in range(STEPS):
        comparing.offset_ms += random.choice((0, 1, 900, 3_000, GRACE_MS // 80))
        back = random.choice((0, 0, 0, 0, 0, 0, 1, 2, 40, 110, 250)) if head > 120 else random.choice((0, 0, 0, 1, -1))
        outcome = await objects.spend(grant, max(1, head - back))
        seen.add((outcome.verdict, back > 100))
        if isinstance(outcome, Spent):
            head = outcome.head
        elif outcome.verdict == "replayed":
            grant, head = await objects.must_start(), 1

    assert {("rotated", False), ("recovered", False), ("repeated", False)} <= seen
    assert {("repeated", True), ("replayed", True)} <= seen
