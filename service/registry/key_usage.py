"""Counts of what still depends on an earlier secret key, for operators who change the key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from service.redis_client.connection import Command
from service.registry.seed_file.plan import find_key_id
from service.store import records
from service.store.client import StoreClient
from service.store.families import SHARDS_AT_ONCE
from service.store.keys import SHARDS
from service.store.registry import SIGNING_NOTE_SECONDS, RegistryStore

_MARGIN_MS: Final = 2 * SIGNING_NOTE_SECONDS * 1000
"""A process may sign for this long after its last note."""


class KeyUsage(NamedTuple):
    """The uses of one key. `sessions` is None if it is not known until when the key signed refresh tokens.

    `sessions` counts those that were last refreshed while the key signed, so it is the most that can depend on it.
    `seed_entries` counts entries of a seed file whose secrets are remembered by digests that the key made.
    """

    sessions: int | None
    seed_entries: int


async def count_key_usage(redis: StoreClient, registry: RegistryStore, key_ids: Collection[str]) -> dict[str, KeyUsage]:
    """Return the usage of each of these keys. Reads all sessions and all seed entries as last applied."""
    signed_until = await registry.list_signing_keys()
    known = {key_id: signed_until[key_id] + _MARGIN_MS for key_id in key_ids if key_id in signed_until}
    sessions = await _count_sessions(redis, known)
    entries = await _count_seed_entries(registry)
    return {key_id: KeyUsage(sessions.get(key_id), entries[key_id]) for key_id in key_ids}


async def _count_sessions(redis: StoreClient, until_ms: Mapping[str, int]) -> dict[str, int]:
    counts = dict.fromkeys(until_ms, 0)
    if not counts:
        return counts
    async for keys in redis.scan("family:{*}:*"):
        commands: list[Command] = [("HGETALL", key) for key in keys]
        families = [records.parse_family(fields) for fields in await redis.read_many(commands) if fields]
        for key_id, until in until_ms.items():
            counts[key_id] += sum(family.used_ms <= until for family in families)
    return counts


async def _count_seed_entries(registry: RegistryStore) -> Counter[str]:
    """Return the number of seed entries by the id of the key that made the digests of their secrets."""
    applied = [text for name, text in (await registry.list_seeds()).items() if name != "file"]
    for first in range(0, len(SHARDS), SHARDS_AT_ONCE):
        seeded = await registry.list_seeded_users(SHARDS[first : first + SHARDS_AT_ONCE])
        applied += [text for _, text in seeded]
    return Counter(key_id for key_id in map(find_key_id, applied) if key_id is not None)
