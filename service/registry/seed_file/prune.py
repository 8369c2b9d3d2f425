"""The part of a seed that removes the entries which an earlier seed had and this one lacks, with their sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from service.protocol.client import Client
from service.protocol.scope import MAIN_REALM
from service.protocol.uri import list_origins
from service.protocol.user import UserIdentity, identify_user
from service.redis_client.lock import RedisLock
from service.registry.pending_revocations import PendingRevocations
from service.registry.seed_file.batch import Batch, Renew, batches
from service.registry.seed_file.field_digests import mark_removal
from service.registry.seed_file.plan import Planned
from service.registry.seed_file.schema import Seed, read_user_entry
from service.store.registry import RegistryStore

_SHARDS_PER_BATCH: Final = 128

_SeededUser = tuple[UserIdentity, str]
"""A user with the digests of the seed entry that was applied."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """Finds what an earlier seed brought. Users are looked for in `shards`."""

    _registry: RegistryStore
    _pending_revocations: PendingRevocations
    _users_per_batch: int
    _shards: Sequence[str]

    async def judge(self, seed: Seed, renew: Renew) -> AsyncIterator[Batch]:
        """Yield the batches of removals. Users come first, because users of a realm log in through it."""
        kept = set[str]()
        for texts in batches(seed.user_texts, 10 * self._users_per_batch):
            entries = map(read_user_entry, texts)
            kept |= {identify_user(entry.realm, entry.username).subject for entry in entries}
            await renew()
        for shards in batches(self._shards, _SHARDS_PER_BATCH):
            seeded = await self._registry.list_seeded_users(shards)
            left_out = [each for each in seeded if each[0].subject not in kept]
            for users in batches(left_out, self._users_per_batch):
                yield await self._judge_users(users)
        names = {f"realm:{name}" for name in seed.realms} | {f"client:{entry.client_id}" for entry in seed.clients}
        stored = await self._registry.list_seeds()
        for name in sorted(set(stored) - names - {"file"}):
            yield await self._judge_entry(name, stored[name])

    async def _judge_users(self, seeded: Sequence[_SeededUser]) -> Batch:
        """Return the removal of users. A disabled user of an external realm keeps the record, which is the block.

        Without a record the user could log in again, with the default roles of the realm.
        """
        found = await self._registry.find_users([identity for identity, _ in seeded])
        pairs = list(zip(seeded, found, strict=True))
        blocked = [each for each, user in pairs if user and user.disabled and user.realm != MAIN_REALM]
        users = [user for each, user in pairs if user is not None and each not in blocked]
        planned = tuple(Planned("user", user.username, "remove", user, None, True, user.realm) for user in users)
        removed = [each for each in seeded if each not in blocked]
        return Batch(0, planned, partial(self._remove_users, removed, [identity for identity, _ in blocked]))

    async def _remove_users(
        self, seeded: Sequence[_SeededUser], blocked: Sequence[UserIdentity], lock: RedisLock
    ) -> None:
        await self._registry.forget_user_seeds(blocked)
        identities = [identity for identity, _ in seeded]
        await self._registry.put_user_seeds([(identity, mark_removal(digests)) for identity, digests in seeded])
        await self._registry.add_pending_users(identities)
        await self._registry.delete_users(identities)
        await self._pending_revocations.run_user_revocations(lock)
        await self._registry.forget_user_seeds(identities)

    async def _judge_entry(self, name: str, stored: str) -> Batch:
        """Return the removal of a client or a realm. `stored` are the digests of its entry."""
        kind, _, rest = name.partition(":")
        pending = mark_removal(stored)
        if kind == "client":
            client = await self._registry.find_client(rest)
            planned = (Planned("client", rest, "remove", client, None, True),) if client else ()
            return Batch(0, planned, partial(self._remove_client, name, client, pending))
        realm = await self._registry.find_realm(rest)
        planned = (Planned("realm", rest, "remove", realm, None, True),) if realm else ()
        return Batch(0, planned, partial(self._remove_realm, name, rest, pending))

    async def _remove_client(self, name: str, client: Client | None, pending: str, _: RedisLock) -> None:
        if client is not None:
            await self._registry.put_seed(name, pending)
            await self._registry.delete_client(client, origins=list_origins(client.redirect_uris))
        await self._registry.forget_seed(name)

    async def _remove_realm(self, name: str, realm: str, pending: str, _: RedisLock) -> None:
        await self._registry.put_seed(name, pending)
        await self._registry.add_pending_realm(realm)
        await self._registry.delete_realm(realm)
        await self._registry.forget_seed(name)
