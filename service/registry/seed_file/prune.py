"""The removal of entries that an earlier seed had and this one lacks, with their sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from service.protocol.scope import MAIN_REALM
from service.protocol.user import User
from service.registry.seed_file.plan import EntryName, Planned
from service.store.registry import RegistryStore

_SHARDS_PER_BATCH: Final = 128


async def list_left_out(
    registry: RegistryStore, kept: Sequence[EntryName], shards: Sequence[str]
) -> AsyncIterator[list[EntryName]]:
    """Yield the entries that an earlier seed applied and that are not `kept`. Users are looked for in `shards`.

    Users come first, because users of a realm log in through it. They have no name, since the store keeps none.
    """
    subjects = {name.identity.subject for name in kept if name.identity is not None}
    for first in range(0, len(shards), _SHARDS_PER_BATCH):
        seeded = await registry.list_seeded_users(shards[first : first + _SHARDS_PER_BATCH])
        yield [EntryName("user", "", identity) for identity, _ in seeded if identity.subject not in subjects]
    left = sorted((await registry.list_seeds()).keys() - {name.seed_name for name in kept})
    yield [EntryName("client", name.removeprefix("client:")) for name in left if name.startswith("client:")]
    yield [EntryName("realm", name.removeprefix("realm:")) for name in left if name.startswith("realm:")]


async def plan_removals(registry: RegistryStore, names: Sequence[EntryName]) -> list[Planned]:
    """Return the removals. An entry whose record is gone is only forgotten.

    A disabled user of an external realm keeps the record, which is the block. Without a record the user could log in
    again, with the default roles of the realm.
    """
    planned = list[Planned]()
    for name, old in zip(names, await registry.find_records([(each.kind, each.record) for each in names]), strict=True):
        is_block = isinstance(old, User) and old.disabled and old.realm != MAIN_REALM
        if isinstance(old, User):
            name = name._replace(name=old.username)
        is_removed = old is not None and not is_block
        planned.append(Planned(name, "remove" if is_removed else None, old, None, "", ends_sessions=is_removed))
    return planned
