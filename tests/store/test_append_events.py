"""The streams of security events: batches, the length limit, reading from either end, and expiry after a month."""

import pytest
import redis

from service.store.events import BEGINNING, MAX_EVENTS, get_position
from service.worker import Worker
from tests.conftest import Elapsed

KEY = "events:{registry}:users"
UNAUTHENTICATED_KEY = "events:{registry}:unauthenticated"
DAY_MS = 24 * 3600 * 1000


@pytest.mark.clause("decided-event-stream")
async def test_appended_events_are_read_in_order(worker: Worker, store: redis.Redis) -> None:
    before_ms = await worker.redis.read_clock_ms()
    await worker.event_stream.append([b'{"event":"one"}', '{"event":"zwölf"}'.encode()])
    await worker.event_stream.append([b'{"event":"three"}'])
    entries = await worker.event_stream.read()

    assert [entry.text.decode() for entry in entries] == ['{"event":"one"}', '{"event":"zwölf"}', '{"event":"three"}']
    assert all(before_ms <= entry.order[0] <= before_ms + 60_000 for entry in entries)
    assert await worker.event_stream.read_latest(2) == entries[1:]


async def test_stream_is_followed_by_its_last_id(worker: Worker) -> None:
    await worker.event_stream.append([b"1", b"2", b"3"])
    first = await worker.event_stream.read(most=2)
    rest = await worker.event_stream.read(after=get_position(first))
    await worker.event_stream.append([b"4"])
    position = get_position(rest, get_position(first))

    assert [entry.text for entry in (*first, *rest)] == [b"1", b"2", b"3"]
    assert [entry.text for entry in await worker.event_stream.read(after=position)] == [b"4"]


async def test_missing_stream_is_empty(worker: Worker, store: redis.Redis) -> None:
    await worker.event_stream.append([])

    assert (await worker.event_stream.read(), await worker.event_stream.read_latest(5)) == ([], [])
    assert not store.exists(KEY)


@pytest.mark.clause("decided-event-stream")
async def test_the_stream_keeps_about_the_newest(worker: Worker, store: redis.Redis) -> None:
    for batch in range(MAX_EVENTS // 1000 + 2):
        await worker.event_stream.append([b"%d %d" % (batch, number) for number in range(1000)])

    assert MAX_EVENTS <= store.xlen(KEY) < MAX_EVENTS + 200
    assert [entry.text for entry in await worker.event_stream.read_latest(1)] == [b"11 999"]


@pytest.mark.clause("decided-event-stream")
async def test_unauthenticated_events_displace_no_others(worker: Worker, store: redis.Redis, elapsed: Elapsed) -> None:
    await worker.event_stream.append([b"of a user"], [b"of an operator"])
    for batch in range(MAX_EVENTS // 1000 + 2):
        await worker.event_stream.append([], [], [], [b"%d %d" % (batch, number) for number in range(1000)])

    assert MAX_EVENTS <= store.xlen(UNAUTHENTICATED_KEY) < MAX_EVENTS + 200
    assert [entry.text for entry in await worker.event_stream.read(most=2)][:2] == [b"of a user", b"of an operator"]
    assert elapsed.leaves(int(store.pttl(UNAUTHENTICATED_KEY)), 30 * DAY_MS)


async def test_both_streams_are_read_as_one_by_the_time_of_redis(worker: Worker, store: redis.Redis) -> None:
    for number in range(1, 10):
        key = UNAUTHENTICATED_KEY if number % 3 else KEY
        store.xadd(key, {"version": "2", "event": f"{number}"}, id=f"{number // 2}-{number}")
    entries = await worker.event_stream.read()

    assert [entry.text for entry in entries] == [b"%d" % number for number in range(1, 10)]
    assert await worker.event_stream.read_latest(10) == entries
    assert [entry.text for entry in await worker.event_stream.read_latest(1)] == [b"8", b"9"]


@pytest.mark.parametrize("most", range(1, 8))
async def test_read_in_steps_nothing_is_left_out_and_all_is_in_order(
    worker: Worker, store: redis.Redis, most: int
) -> None:
    """Both streams may have entries with the same id, and one may be far behind the other."""
    for key, numbers in ((KEY, (*range(1, 20), 30, 31)), (UNAUTHENTICATED_KEY, (10, *range(20, 32)))):
        for number in numbers:
            store.xadd(key, {"version": "2", "event": f"{number}"}, id=f"{number}-0")
    position, found = BEGINNING, []
    while news := await worker.event_stream.read(after=position, most=most):
        position = get_position(news, position)
        found += news

    assert [entry.order for entry in found] == sorted(entry.order for entry in found)
    assert len({(entry.id, entry.stream) for entry in found}) == len(found) == 34


async def test_entries_late_in_the_same_millisecond_are_read(worker: Worker, store: redis.Redis) -> None:
    store.xadd(KEY, {"version": "2", "event": "1"}, id="5-3")
    position = get_position(await worker.event_stream.read())
    store.xadd(UNAUTHENTICATED_KEY, {"version": "2", "event": "2"}, id="5-0")

    assert [entry.text for entry in await worker.event_stream.read(after=position)] == [b"2"]
