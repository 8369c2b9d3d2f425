"""A comparison of two servers: each script runs on a real server and on fakeredis, from the same keys."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import redis

from service.config.settings import Settings, make_redis_url
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.script import Argument, Script
from service.store.client import StoreClient
from service.store.keys import LASTING_KINDS, get_kind
from tests.conftest import ROUNDING_MS, read_server_ms
from tests.lua.fake_redis import FakeStoreClient, ServerClock
from tests.store.sessions import stop_clock

Answer = list[str | int] | StoreUnavailable


class Found(NamedTuple):
    """A key as it was found. `left_ms` is -1 if it has no time to live."""

    type: str
    value: Any
    left_ms: int


class ComparingClient(StoreClient):
    """A client of a real server. Each script also runs on fakeredis, from a copy of the real server's keys.

    Both runs see one time, which stands still. Answers and keys must be equal, and only lasting keys may live on. A
    lifetime on the real server may be shorter by the time that elapsed. `words` has each script with the first words of
    its answers.
    """

    def __init__(
        self, settings: Settings, real: redis.Redis, fake_client: FakeStoreClient, fake: redis.Redis, clock: ServerClock
    ) -> None:
        super().__init__(make_redis_url(settings), clock_offset_ms=lambda: self.offset_ms)
        self.offset_ms = 0
        self.words: set[tuple[str, str]] = set()
        self.real = real
        self._fake_client = fake_client
        fake_client.clock_offset_ms = self.clock_offset_ms
        self._fake = fake
        self._clock = clock

    async def run(self, script: Script, **values: Argument) -> list[str | int]:
        began_ms = read_server_ms(self.real)
        self._clock.now_ms = began_ms
        copy_keys(self.real, self._fake)
        stopped = stop_clock(script, began_ms)
        answer = await _catch(super().run(stopped, **values))
        fake_answer = await _catch(self._fake_client.run(stopped, **values))
        found, fake_found = look_at_keys(self.real), look_at_keys(self._fake)
        elapsed_ms = read_server_ms(self.real) - began_ms + ROUNDING_MS

        assert _agree(answer, fake_answer, elapsed_ms), (script.name, answer, fake_answer)
        assert fake_found.keys() == found.keys(), script.name
        for key, (kind, value, left_ms) in found.items():
            fake_kind, fake_value, fake_left_ms = fake_found[key]
            assert (key, fake_kind, fake_value) == (key, kind, value), script.name
            assert (left_ms < 0) == (fake_left_ms < 0) == (get_kind(key) in LASTING_KINDS), (script.name, key)
            assert fake_left_ms - elapsed_ms <= left_ms <= fake_left_ms + ROUNDING_MS, (script.name, key)
        if isinstance(answer, StoreUnavailable):
            raise answer
        self.words.add((script.name, str(answer[0])))
        return answer


async def _catch(run: Awaitable[list[str | int]]) -> Answer:
    try:
        return await run
    except StoreUnavailable as error:
        return error


def _agree(answer: Answer, fake_answer: Answer, elapsed_ms: int) -> bool:
    """Return True if both are the same. A wait, which is the rest of a lifetime, may be shorter on the real server.

    The servers add different texts to the error of a script. UNREADABLE is the only one that scripts raise.
    """
    if isinstance(answer, StoreUnavailable) or isinstance(fake_answer, StoreUnavailable):
        return "UNREADABLE" in str(answer) and "UNREADABLE" in str(fake_answer)
    if answer[0] == fake_answer[0] == "exhausted":
        return int(fake_answer[1]) - elapsed_ms <= int(answer[1]) <= int(fake_answer[1]) + ROUNDING_MS
    return answer == fake_answer


def copy_keys(source: redis.Redis, target: redis.Redis) -> None:
    """Replace all keys of the target by those of the source, with their lifetimes."""
    target.flushall()
    for key, (kind, value, left_ms) in look_at_keys(source).items():
        WRITES[kind](target, key, value)
        if left_ms >= 0:
            target.pexpire(key, left_ms)


WRITES: Final[dict[str, Callable[[redis.Redis, str, Any], object]]] = {
    "string": lambda target, key, value: target.set(key, value),
    "hash": lambda target, key, value: target.hset(key, mapping=value),
    "zset": lambda target, key, value: target.zadd(key, dict(value)),
    "set": lambda target, key, value: target.sadd(key, *value),
    "stream": lambda target, key, value: [target.xadd(key, fields) for fields in value],
}


def look_at_keys(store: redis.Redis) -> dict[str, Found]:
    """Return every key. Of a stream, the value is its entries without their ids, which contain the server's time."""
    keys = sorted(map(str, store.scan_iter(count=1000)))
    pipeline: Any = store.pipeline(transaction=False)
    for key in keys:
        pipeline.type(key)
        pipeline.pttl(key)
    answers = pipeline.execute()
    kinds, lives_ms = answers[::2], answers[1::2]
    for key, kind in zip(keys, kinds, strict=True):
        READS[kind](pipeline, key)
    found = zip(keys, kinds, pipeline.execute(), lives_ms, strict=True)
    return {key: Found(kind, _make_comparable(kind, value), left_ms) for key, kind, value, left_ms in found}


READS: Final[dict[str, Callable[[Any, str], object]]] = {
    "string": lambda pipeline, key: pipeline.get(key),
    "hash": lambda pipeline, key: pipeline.hgetall(key),
    "zset": lambda pipeline, key: pipeline.zrange(key, 0, -1, withscores=True),
    "set": lambda pipeline, key: pipeline.smembers(key),
    "stream": lambda pipeline, key: pipeline.xrange(key),
}


def _make_comparable(kind: str, value: Any) -> Any:
    if kind == "zset":
        return [tuple(pair) for pair in value]
    return [fields for _, fields in value] if kind == "stream" else value
