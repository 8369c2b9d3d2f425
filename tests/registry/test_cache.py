"""Each worker's memory of the registry: short, bounded, and never trusted on through an outage."""

import asyncio

import pytest

from service.app import Parts
from service.protocol.client import Client
from service.registry import cache as cache_module
from service.registry.cache import MOST_ENTRIES, RegistryCache
from service.store.connection import StoreUnavailable


class Time:
    """Stands for the module `time` in the cache."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(cache_module, "time", time)
    return time


class Records:
    """Records by name, and how often each was read."""

    def __init__(self) -> None:
        self.by_name: dict[str, int] = {}
        self.reads: list[str] = []
        self.is_away = False

    async def find(self, name: str) -> int | None:
        if self.is_away:
            raise StoreUnavailable
        self.reads.append(name)
        return self.by_name.get(name)


@pytest.mark.clause("decided-registry-change-seen")
async def test_a_changed_record_is_seen_after_half_a_second(parts: Parts, time: Time) -> None:
    cache = RegistryCache(parts.registry.find_client)
    for name in ("One", "Two"):
        client = Client(client_id="app", client_name=name)
        await parts.registry.put_client(client, old_origins=(), new_origins=(), loss=None)
        time.now += 0.51
        assert await cache.find("app") == client


async def test_within_half_a_second_memory_answers(time: Time) -> None:
    records = Records()
    cache = RegistryCache(records.find)
    records.by_name["app"] = 1
    assert await cache.find("app") == 1
    records.by_name["app"] = 2
    time.now += 0.49

    assert await cache.find("app") == 1
    time.now += 0.02
    assert await cache.find("app") == 2
    assert records.reads == ["app", "app"]


@pytest.mark.clause("decided-registry-change-seen")
async def test_a_name_that_was_not_known_is_found_soon_after_it_is_made(time: Time) -> None:
    records = Records()
    cache = RegistryCache(records.find)
    assert await cache.find("new") is None
    records.by_name["new"] = 1

    assert await cache.find("new") is None
    time.now += 0.51
    assert await cache.find("new") == 1


async def test_a_slow_read_does_not_lengthen_the_trust(time: Time) -> None:
    """What changed while the answer was on its way is seen as early as ever."""
    answers = iter([1, 2])

    async def find(name: str) -> int:
        time.now += 0.4
        return next(answers)

    cache = RegistryCache(find)
    assert await cache.find("app") == 1
    time.now += 0.11

    assert await cache.find("app") == 2


@pytest.mark.clause("decided-i8-fail-closed")
async def test_an_outage_is_an_error_and_not_the_old_answer(time: Time) -> None:
    records = Records()
    cache = RegistryCache(records.find)
    await cache.find("app")
    records.is_away = True
    time.now += 0.51

    with pytest.raises(StoreUnavailable):
        await cache.find("app")


async def test_memory_is_bounded_and_the_oldest_goes_first(time: Time) -> None:
    records = Records()
    cache = RegistryCache(records.find)
    for number in range(MOST_ENTRIES + 1):
        await cache.find(str(number))
    await cache.find("1")
    await cache.find("0")

    assert records.reads.count("1") == 1
    assert records.reads.count("0") == 2


@pytest.mark.clause("decided-registry-change-seen")
async def test_many_who_miss_at_once_share_one_reading() -> None:
    reads = []

    async def find(name: str) -> str:
        reads.append(name)
        await asyncio.sleep(0)
        return name.upper()

    cache = RegistryCache(find)
    found = await asyncio.gather(*(cache.find(name) for name in ["shop", "portal"] * 300))

    assert found == ["SHOP", "PORTAL"] * 300
    assert sorted(reads) == ["portal", "shop"]


@pytest.mark.clause("decided-i8-one-deadline")
async def test_an_outage_is_shared_too_and_forgotten() -> None:
    outages: list[str] = []

    async def find(name: str) -> str:
        await asyncio.sleep(0)
        if not outages:
            outages.append(name)
            raise StoreUnavailable
        return name

    cache = RegistryCache(find)
    found = await asyncio.gather(*(cache.find("shop") for _ in range(300)), return_exceptions=True)

    assert {StoreUnavailable} == {type(each) for each in found}
    assert outages == ["shop"]
    assert await cache.find("shop") == "shop"
