"""The application of a seed to Redis: new entries are added and changed entries updated; all others are left alone.

Redis stores a keyed digest of each entry as last applied. An entry whose text has not changed since is not touched. So
a restart does not undo a change that was made elsewhere (a disabled user, a deleted client, a rotated secret). `force`
overrides that. `prune` removes the entries that an earlier seed had and this one lacks. One process applies a seed
while the others wait.

Entries are compared with the records batch by batch. Users whose sessions must end are noted in Redis before or with
the record, as pending revocations. The process that applies a seed now or next runs them. The digest of an entry is
replaced in two steps, before and after its record. So the next run repeats a write that was interrupted. A dry run
compares in the same way and writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from service.crypto.keyring import Keyring
from service.protocol.client import find_narrowing
from service.protocol.provider import IdentityProvider
from service.protocol.user import User, UserIdentity, identify_user
from service.redis_client.lock import RedisLock
from service.registry.pending_revocations import PendingRevocations
from service.registry.records import is_narrowed, list_origins, make_client, make_provider, make_user
from service.registry.seed_file.audit import SeedEvents
from service.registry.seed_file.batch import (
    ApplyOptions,
    Batch,
    Progress,
    Renew,
    UserPlan,
    batches,
    do_nothing,
    ignore_progress,
    renewing,
)
from service.registry.seed_file.fingerprint import read_fingerprint
from service.registry.seed_file.plan import Change, Difference, Outcome, Planned, describe, plan_change
from service.registry.seed_file.reader import load_seed
from service.registry.seed_file.schema import ClientEntry, RealmEntry, Seed, UserEntry, read_user_entry
from service.registry.seed_file.tally import Tally
from service.store.registry import RegistryStore

USERS_PER_BATCH: Final = 500
_SHARDS_PER_BATCH: Final = 128
SHARDS: Final = tuple(f"{number:03x}" for number in range(4096))
_UNDER_WAY: Final = "under way"
"""The value in place of the digest of an entry that is being written.

If the write is interrupted, any seed file writes the entry again, also the old one.
"""


class Seeding:
    """The application of seeds, and its dry run. Pruning looks for users in `shards`, which are all that exist."""

    def __init__(
        self,
        registry: RegistryStore,
        keyring: Keyring,
        pending_revocations: PendingRevocations,
        hashing_threads: int,
        *,
        users_per_batch: int = USERS_PER_BATCH,
        shards: Sequence[str] = SHARDS,
    ) -> None:
        self.users_per_batch = users_per_batch
        self.shards = shards
        self._registry = registry
        self._keyring = keyring
        self._pending_revocations = pending_revocations
        self._hashing_threads = hashing_threads

    async def apply(
        self,
        seed: Seed,
        *,
        prune: bool = False,
        force: bool = False,
        on_progress: Progress = ignore_progress,
        actor: str = "service",
    ) -> Outcome:
        """Apply the seed. If another process applies one, wait for it; then there is usually nothing left to do.

        `on_progress` is called after each batch with the number of entries that are done, and the number of all.
        `actor` is recorded in the security events.
        """
        async with self._registry.make_lock() as lock:
            judgement = ApplyOptions(force, prune, lock.renew)
            return await self._apply(seed, judgement, lock, on_progress, actor)

    async def apply_file(self, path: Path, min_password_characters: int) -> Outcome:
        """Apply the seed file.

        A file that is in force unchanged is not parsed again, since it had no mistakes when applied.

        Of several workers that start at once, one parses the file.
        """
        async with self._registry.make_lock() as lock:
            if await self._is_in_force(await asyncio.to_thread(read_fingerprint, path)):
                await self._pending_revocations.run_all(lock)
                return Outcome()
            seed = await renewing(lock, asyncio.to_thread(load_seed, path, min_password_characters))
            return await self._apply(seed, ApplyOptions(False, False, lock.renew), lock, ignore_progress, "service")

    async def compare(
        self, seed: Seed, *, prune: bool = False, force: bool = False, most_changes: int = 100
    ) -> Difference:
        """Return what `apply` would do now, with at most `most_changes` changes by name.

        Writes nothing and takes no lock.
        """
        tally = Tally(seed, is_key_strange=not (force or await self.is_key_known()))
        first = list[Change]()
        async for batch in self._judge(seed, ApplyOptions(force, prune, do_nothing)):
            tally.add(batch)
            first += map(describe, batch.planned[: most_changes - len(first)])
        return Difference(
            **msgspec.structs.asdict(tally.outcome),
            first=tuple(first),
            staying_clients=await self._registry.count_unseeded_clients() if prune else 0,
            staying_users=await self._registry.count_unseeded_users() if prune else 0,
        )

    async def _apply(
        self, seed: Seed, judgement: ApplyOptions, lock: RedisLock, on_progress: Progress, actor: str
    ) -> Outcome:
        tally = Tally(seed, is_key_strange=not (judgement.force or await self.is_key_known()))
        if judgement.force or judgement.prune or not await self._is_in_force(seed.fingerprint):
            done, events = 0, SeedEvents(actor)
            await self._registry.put_seed("file", _UNDER_WAY)
            try:
                async for batch in self._judge(seed, judgement):
                    await batch.write(lock)
                    await lock.renew()
                    for each in batch.planned:
                        events.note(each.kind, each.act, each.name, each.realm)
                    tally.add(batch)
                    done += batch.entries
                    on_progress(done, seed.size)
            finally:
                events.record_all()
        await self._pending_revocations.run_all(lock)
        await lock.renew()
        await self._registry.put_seed("file", self._keyring.digest_seed(seed.fingerprint))
        return tally.outcome

    async def is_key_known(self) -> bool:
        """Return True if one of our keys made the digest of the last seed, or if there is no digest."""
        digest = await self._registry.find_seed("file")
        return digest is None or digest == _UNDER_WAY or self._keyring.made_seed_digest(digest)

    async def _is_in_force(self, fingerprint: bytes) -> bool:
        return await self._registry.find_seed("file") == self._keyring.digest_seed(fingerprint)

    async def _judge(self, seed: Seed, judgement: ApplyOptions) -> AsyncIterator[Batch]:
        """Yield the batches in the order of writing.

        Each batch is compared with Redis after the caller has processed the previous one.
        """
        for name, realm_entry in seed.realms.items():
            yield await self._judge_realm(name, realm_entry, judgement)
        for client_entry in seed.clients:
            yield await self._judge_client(client_entry, judgement)
        with ThreadPoolExecutor(self._hashing_threads, thread_name_prefix="seed") as threads:
            for texts in batches(seed.user_texts, self.users_per_batch):
                yield await self._judge_users(texts, judgement, threads)
        if judgement.prune:
            async for batch in self._judge_left_out(seed, judgement.renew):
                yield batch

    async def _judge_realm(self, name: str, entry: RealmEntry, judgement: ApplyOptions) -> Batch:
        """Compare a realm. After a change of the current key the realm is written again, encrypted with that key."""
        text = msgspec.json.encode(entry)
        known, digest = await self._registry.find_seed(f"realm:{name}"), self._keyring.digest_seed(text)
        is_changed = not self._recognises(known, text)
        if known == digest and not judgement.force:
            return Batch(1)
        old = await self._registry.find_realm(name)
        new = make_provider(name, entry, old, self._keyring)
        is_narrowed = old is not None and not set(old.default_roles) <= set(new.default_roles)
        planned = plan_change("realm", name, old, new, is_changed, judgement.force, is_narrowed)
        if not planned and known == digest:
            return Batch(1)
        return Batch(1, planned, partial(self._write_realm, name, new, digest, is_narrowed))

    async def _write_realm(
        self, name: str, new: IdentityProvider, digest: str, is_narrowed: bool, _: RedisLock
    ) -> None:
        await self._registry.put_seed(f"realm:{name}", _UNDER_WAY)
        if is_narrowed:
            await self._registry.add_pending_realm(name)
        await self._registry.put_realm(name, new)
        await self._registry.put_seed(f"realm:{name}", digest)

    async def _judge_client(self, entry: ClientEntry, judgement: ApplyOptions) -> Batch:
        text = msgspec.json.encode(entry)
        name = f"client:{entry.client_id}"
        known, digest = await self._registry.find_seed(name), self._keyring.digest_seed(text)
        is_changed = not self._recognises(known, text)
        if not (is_changed or judgement.force):
            return Batch(1, (), partial(self._remember, name, known, digest))
        old = await self._registry.find_client(entry.client_id)
        new = await asyncio.to_thread(make_client, entry, old)
        narrowing = None if old is None else find_narrowing(old, new)
        planned = plan_change("client", entry.client_id, old, new, is_changed, judgement.force, narrowing is not None)
        if not planned:
            return Batch(1, (), partial(self._remember, name, known, digest))

        async def write(_: RedisLock) -> None:
            await self._registry.put_seed(name, _UNDER_WAY)
            old_origins = list_origins(old.redirect_uris) if old else ()
            new_origins = list_origins(new.redirect_uris)
            await self._registry.put_client(new, old_origins=old_origins, new_origins=new_origins, narrowing=narrowing)
            await self._registry.put_seed(name, digest)

        return Batch(1, planned, write)

    async def _remember(self, name: str, known: str | None, digest: str, _: RedisLock) -> None:
        """Store the entry's digest again, made with the current key."""
        if known != digest:
            await self._registry.put_seed(name, digest)

    async def _judge_users(self, texts: Sequence[bytes], judgement: ApplyOptions, threads: ThreadPoolExecutor) -> Batch:
        entries = [read_user_entry(text) for text in texts]
        identities = [identify_user(entry.realm, entry.username) for entry in entries]
        digests = [self._keyring.digest_seed(text) for text in texts]
        known = await self._registry.find_user_seeds(identities)
        stale = [index for index, digest in enumerate(digests) if known[index] != digest]
        changed = {index for index in stale if not self._recognises(known[index], texts[index])}
        looked_at = list(range(len(texts))) if judgement.force else sorted(changed)
        plans = await self._plan_users([(entries[i], digests[i], i in changed) for i in looked_at], judgement, threads)
        remembered = [(identities[index], digests[index]) for index in stale if index not in changed]
        return Batch(
            len(texts),
            tuple(plan.planned for plan in plans),
            partial(self._write_users, plans, remembered),
            sum(entries[index].password is not None for index in looked_at),
        )

    async def _plan_users(
        self, entries: Sequence[tuple[UserEntry, str, bool]], judgement: ApplyOptions, threads: ThreadPoolExecutor
    ) -> list[UserPlan]:
        """Plan the changes of user entries, each given with its digest and True if its text changed."""
        olds = await self._registry.find_users([identify_user(entry.realm, entry.username) for entry, _, _ in entries])
        users = await self._make_users([entry for entry, _, _ in entries], olds, judgement.renew, threads)
        befores = await self._list_previous_users(users, olds)
        plans = []
        for (_, digest, is_changed), user, old, before in zip(entries, users, olds, befores, strict=True):
            is_lost = before is not None and is_narrowed(before, user)
            for planned in plan_change(
                "user", user.username, old, user, is_changed, judgement.force, is_lost, user.realm
            ):
                plans.append(UserPlan(planned, user, digest))
        return plans

    async def _make_users(
        self, entries: Sequence[UserEntry], olds: Sequence[User | None], renew: Renew, threads: ThreadPoolExecutor
    ) -> list[User]:
        """Make the records of users. Plain passwords are hashed in threads, because the hash is slow."""
        plain = [index for index, entry in enumerate(entries) if entry.password is not None]
        made = dict[int, User]()
        loop = asyncio.get_running_loop()
        for batch in batches(plain, 8 * self._hashing_threads):
            work = (loop.run_in_executor(threads, make_user, entries[index], olds[index]) for index in batch)
            made.update(zip(batch, await asyncio.gather(*work), strict=True))
            await renew()
        return [made.get(i) or make_user(entry, olds[i]) for i, entry in enumerate(entries)]

    async def _list_previous_users(self, users: Sequence[User], olds: Sequence[User | None]) -> list[User | None]:
        """Return what each user was until now.

        A user without a record in an external realm had the default roles of the realm.
        """
        realms = {user.realm for user, old in zip(users, olds, strict=True) if old is None}
        providers = {realm: await self._registry.find_realm(realm) for realm in realms}
        befores = list(olds)
        for index, user in enumerate(users):
            provider = providers.get(user.realm)
            if olds[index] is None and provider is not None:
                befores[index] = provider.make_unlisted_user(user.realm, user.username)
        return befores

    async def _write_users(
        self, plans: Sequence[UserPlan], remembered: Sequence[tuple[UserIdentity, str]], lock: RedisLock
    ) -> None:
        """Write users. `remembered` are digests of unchanged entries, made with the current key."""
        users = [plan.user for plan in plans]
        await self._registry.put_user_seeds([(user.identity, _UNDER_WAY) for user in users])
        owing = [plan.user.identity for plan in plans if plan.planned.ends_sessions]
        await self._registry.add_pending_users(owing)
        await self._registry.put_users(users)
        await self._pending_revocations.run_user_revocations(lock)
        digests = [(plan.user.identity, plan.digest) for plan in plans]
        await self._registry.put_user_seeds([*digests, *remembered])

    async def _judge_left_out(self, seed: Seed, renew: Renew) -> AsyncIterator[Batch]:
        """Yield batches that remove the entries which an earlier seed had and this one lacks.

        Users come first, because users of a realm log in through it.
        """
        kept = set[str]()
        for texts in batches(seed.user_texts, 10 * self.users_per_batch):
            entries = map(read_user_entry, texts)
            kept |= {identify_user(entry.realm, entry.username).subject for entry in entries}
            await renew()
        for shards in batches(self.shards, _SHARDS_PER_BATCH):
            seeded = await self._registry.list_seeded_users(shards)
            left_out = [identity for identity in seeded if identity.subject not in kept]
            for identities in batches(left_out, self.users_per_batch):
                yield await self._judge_left_users(identities)
        names = {f"realm:{name}" for name in seed.realms} | {f"client:{entry.client_id}" for entry in seed.clients}
        for name in sorted(set(await self._registry.list_seeds()) - names - {"file"}):
            kind, _, rest = name.partition(":")
            yield await (self._judge_left_client(rest) if kind == "client" else self._judge_left_realm(rest))

    async def _judge_left_users(self, identities: Sequence[UserIdentity]) -> Batch:
        users = [user for user in await self._registry.find_users(identities) if user is not None]
        planned = tuple(Planned("user", user.username, "remove", user, None, True, user.realm) for user in users)
        return Batch(0, planned, partial(self._remove_users, identities))

    async def _remove_users(self, identities: Sequence[UserIdentity], lock: RedisLock) -> None:
        await self._registry.put_user_seeds([(identity, _UNDER_WAY) for identity in identities])
        await self._registry.add_pending_users(identities)
        await self._registry.delete_users(identities)
        await self._pending_revocations.run_user_revocations(lock)
        await self._registry.forget_user_seeds(identities)

    async def _judge_left_client(self, client_id: str) -> Batch:
        client = await self._registry.find_client(client_id)

        async def remove(_: RedisLock) -> None:
            if client is not None:
                await self._registry.put_seed(f"client:{client_id}", _UNDER_WAY)
                await self._registry.delete_client(client, origins=list_origins(client.redirect_uris))
            await self._registry.forget_seed(f"client:{client_id}")

        planned = (Planned("client", client_id, "remove", client, None, True),) if client else ()
        return Batch(0, planned, remove)

    async def _judge_left_realm(self, name: str) -> Batch:
        realm = await self._registry.find_realm(name)

        async def remove(_: RedisLock) -> None:
            await self._registry.put_seed(f"realm:{name}", _UNDER_WAY)
            await self._registry.add_pending_realm(name)
            await self._registry.delete_realm(name)
            await self._registry.forget_seed(f"realm:{name}")

        planned = (Planned("realm", name, "remove", realm, None, True),) if realm else ()
        return Batch(0, planned, remove)

    def _recognises(self, digest: str | None, text: bytes) -> bool:
        """Return True if the text is the one that was applied, or if that cannot be determined.

        A digest that was made with a key which is gone cannot be compared. Then changes that the console made since
        must stay. Otherwise, dropping a stolen key would enable a disabled user again.
        """
        if digest is None or digest == _UNDER_WAY:
            return False
        return self._keyring.recognises_seed(digest, text) or not self._keyring.made_seed_digest(digest)
