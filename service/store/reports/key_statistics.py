"""Statistics about the keys in Redis: counts, sampled sizes, keys that never expire but should, and foreign ones.

Each report reads the name of every key once, in batches, on every master. That takes about a second for a few hundred
thousand keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from service.redis_client.connection import Command
from service.store.client import StoreClient
from service.store.keys import EXPIRING_KINDS, get_kind, is_foreign_key

_SAMPLES: Final = 200
_EXAMPLES: Final = 5


async def count_keys(redis: StoreClient, after_batch: Callable[[int], object]) -> tuple[Counter[str], dict[str, float]]:
    """Return the number of keys and the mean size of a key in bytes, both by kind. The mean is taken from a sample.

    `after_batch` is called with the number of keys counted so far.
    """
    counts: Counter[str] = Counter()
    samples: dict[str, list[str]] = {}
    async for keys in _scan(redis, after_batch):
        for key in keys:
            kind = get_kind(key)
            counts[kind] += 1
            # The first keys are a fair sample: SCAN returns keys in the order of their hashes, not of their sizes.
            if counts[kind] <= _SAMPLES:
                samples.setdefault(kind, []).append(key)
    return counts, {kind: await _weigh(redis, keys) for kind, keys in samples.items()}


async def list_odd_keys(
    redis: StoreClient, after_batch: Callable[[int], object]
) -> tuple[dict[str, list[str]], list[str], int]:
    """Return some keys without a time to live for each kind that should expire, and some keys of other programs.

    The third value is the number of access tokens. `after_batch` is called with the number of keys read so far.
    """
    endless, foreign, tokens = dict[str, list[str]](), list[str](), 0
    async for keys in _scan(redis, after_batch):
        tokens += sum(get_kind(key) == "access" for key in keys)
        foreign += [key for key in keys if is_foreign_key(key)][: _EXAMPLES - len(foreign)]
        mortal = [key for key in keys if get_kind(key) in EXPIRING_KINDS and not is_foreign_key(key)]
        commands: list[Command] = [("PTTL", key) for key in mortal]
        for key, left_ms in zip(mortal, await redis.read_many(commands), strict=True):
            if left_ms == -1 and len(endless.setdefault(get_kind(key), [])) < _EXAMPLES:
                endless[get_kind(key)].append(key)
    return endless, foreign, tokens


async def _scan(redis: StoreClient, after_batch: Callable[[int], object]) -> AsyncIterator[list[str]]:
    counted = 0
    async for keys in redis.scan("*"):
        yield keys
        counted += len(keys)
        after_batch(counted)


async def _weigh(redis: StoreClient, keys: Sequence[str]) -> float:
    sizes = [await redis.measure_key(key) for key in keys]
    known = [size for size in sizes if size is not None]
    return sum(known) / max(1, len(known))
