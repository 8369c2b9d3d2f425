"""The stream of security events: appended to in batches, capped, read from either end, and over after a month."""

import pytest
import redis

from service.app import Parts
from service.store.events import MOST_EVENTS
from tests.watching import ONE_SERVER, watching

KEY = "events:{registry}"
DAY_MS = 24 * 3600 * 1000


@pytest.mark.clause("decided-event-stream")
async def test_what_is_appended_is_read_in_order_under_the_time_of_redis(parts: Parts, store: redis.Redis) -> None:
    before_ms = await parts.connection.read_clock_ms()
    await parts.event_stream.append([b'{"event":"one"}', '{"event":"zwölf"}'.encode()])
    await parts.event_stream.append([b'{"event":"three"}'])
    entries = await parts.event_stream.read()

    assert [text.decode() for _, text in entries] == ['{"event":"one"}', '{"event":"zwölf"}', '{"event":"three"}']
    assert all(before_ms <= int(name.partition("-")[0]) <= before_ms + 60_000 for name, _ in entries)
    assert await parts.event_stream.read_latest(2) == entries[1:]


async def test_the_stream_is_followed_by_asking_for_what_comes_after_the_last_id(parts: Parts) -> None:
    await parts.event_stream.append([b"1", b"2", b"3"])
    first, second = await parts.event_stream.read(most=2)
    rest = await parts.event_stream.read(after=second[0])
    await parts.event_stream.append([b"4"])

    assert [text for _, text in (first, second, *rest)] == [b"1", b"2", b"3"]
    assert [text for _, text in await parts.event_stream.read(after=rest[-1][0])] == [b"4"]


async def test_a_stream_that_is_not_there_is_empty(parts: Parts, store: redis.Redis) -> None:
    await parts.event_stream.append([])

    assert (await parts.event_stream.read(), await parts.event_stream.read_latest(5)) == ([], [])
    assert not store.exists(KEY)


@pytest.mark.clause("decided-event-stream")
async def test_the_stream_keeps_about_the_newest(parts: Parts, store: redis.Redis) -> None:
    for batch in range(MOST_EVENTS // 1000 + 2):
        await parts.event_stream.append([b"%d %d" % (batch, number) for number in range(1000)])

    assert MOST_EVENTS <= store.xlen(KEY) < MOST_EVENTS + 200
    assert [text for _, text in await parts.event_stream.read_latest(1)] == [b"11 999"]


@pytest.mark.clause("decided-event-stream", "decided-i6-everything-expires")
async def test_each_batch_lets_the_stream_live_for_a_month_more(parts: Parts, store: redis.Redis) -> None:
    await parts.event_stream.append([b"1"])
    store.pexpire(KEY, 1000)
    await parts.event_stream.append([b"2"])

    assert 30 * DAY_MS - 60_000 < int(store.pttl(KEY)) <= 30 * DAY_MS


@ONE_SERVER
async def test_a_batch_is_one_script(parts: Parts, store: redis.Redis) -> None:
    await parts.event_stream.append([b"1"])
    with watching(store) as commands:
        await parts.event_stream.append([b"%d" % number for number in range(1000)])

    assert len([command for command in commands if command.startswith("EVALSHA")]) == 1
    assert len([command for command in commands if command.startswith("XADD")]) == 1000
    assert commands[0].startswith("EVALSHA")
    assert len([command for command in commands if command.startswith("PEXPIRE")]) == 1
