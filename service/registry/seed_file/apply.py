"""The application of a seed to Redis: new entries are added and changed entries updated; all others are left alone.

Redis stores a keyed digest of each field of each entry as last applied. Only fields whose text has changed since are
written. So a seed does not undo a change that was made elsewhere (a disabled user, a deleted client, a rotated secret).
`force` overrides that. `prune` removes the entries that an earlier seed had and this one lacks. One process applies a
seed while the others wait.

Entries are compared with the records batch by batch. Users whose sessions must end are noted in Redis before or with
the record, as pending revocations. The process that applies a seed now or next runs them. The digests of an entry are
replaced in two steps, before and after its record. So the next run repeats a write that was interrupted. A dry run
compares in the same way and writes nothing.

Clauses: SPEC §2.3, §3
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from service.crypto.keyring import KEY_ID_CHARACTERS, Keyring
from service.protocol.client import Client, find_narrowing
from service.protocol.provider import IdentityProvider
from service.protocol.uri import list_origins
from service.redis_client.lock import RedisLock
from service.registry.pending_revocations import PendingRevocations
from service.registry.records import make_client, make_provider
from service.registry.seed_file.audit import SeedEvents
from service.registry.seed_file.batch import (
    ApplyOptions,
    Batch,
    Progress,
    batches,
    do_nothing,
    ignore_progress,
    renewing,
)
from service.registry.seed_file.field_digests import (
    CLIENT_SECRET,
    UNDER_WAY,
    Comparison,
    compare_entry,
    list_letters,
)
from service.registry.seed_file.fingerprint import read_fingerprint
from service.registry.seed_file.plan import (
    Change,
    Difference,
    Outcome,
    describe,
    is_deleted,
    is_whole,
    plan_change,
    plan_record,
)
from service.registry.seed_file.prune import Pruning
from service.registry.seed_file.reader import load_seed
from service.registry.seed_file.schema import ClientEntry, RealmEntry, Seed
from service.registry.seed_file.tally import Tally
from service.registry.seed_file.users import UserSeeding
from service.store.keys import SHARDS
from service.store.registry import RegistryStore

USERS_PER_BATCH: Final = 500


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
        on_wait: Callable[[], object] = lambda: None,
        actor: str = "service",
    ) -> Outcome:
        """Apply the seed. If another process applies one, wait for it; then there is usually nothing left to do.

        `on_progress` is called after each batch with the number of entries that are done, and the number of all.
        `on_wait` is called if another process has the lock. `actor` is recorded in the security events.
        """
        async with self._registry.make_lock(on_wait) as lock:
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
        first, ending, made_public = list[Change](), 0, 0
        async for batch in self._judge(seed, ApplyOptions(force, prune, do_nothing)):
            tally.add(batch)
            ending += sum(planned.ends_sessions for planned in batch.planned)
            made_public += sum(planned.makes_public for planned in batch.planned)
            first += map(describe, batch.planned[: most_changes - len(first)])
        return Difference(
            **msgspec.structs.asdict(tally.outcome),
            first=tuple(first),
            ending=ending,
            made_public=made_public,
            staying_clients=await self._registry.count_unseeded_clients() if prune else 0,
            staying_users=await self._registry.count_unseeded_users() if prune else 0,
        )

    async def _apply(
        self, seed: Seed, judgement: ApplyOptions, lock: RedisLock, on_progress: Progress, actor: str
    ) -> Outcome:
        tally = Tally(seed, is_key_strange=not (judgement.force or await self.is_key_known()))
        if judgement.force or judgement.prune or not await self._is_in_force(seed.fingerprint):
            done, events = 0, SeedEvents(actor)
            await self._registry.put_seed("file", self._unfinished)
            try:
                async for batch in self._judge(seed, judgement):
                    await batch.write(lock)
                    await lock.renew()
                    for each in batch.planned:
                        events.note(each)
                    tally.add(batch)
                    done += batch.entries
                    on_progress(done, seed.size)
            finally:
                events.record_all()
        await self._pending_revocations.run_all(lock)
        await lock.renew()
        if not tally.has_unclear:  # else the next start reads the file again, and warns again
            await self._registry.put_seed("file", self._digest_file(seed.fingerprint))
        return tally.outcome

    @property
    def _unfinished(self) -> str:
        """The text in place of the file's digest while the file is not in force. It names the key."""
        return f"{UNDER_WAY} {self._keyring.key_id}"

    async def is_key_known(self) -> bool:
        """Return True if one of our keys made the digest of the last seed, or if there is no digest."""
        digest = await self._registry.find_seed("file")
        if digest is None or digest == UNDER_WAY:
            return True
        return self._keyring.has_key(digest.removeprefix("=").removeprefix(f"{UNDER_WAY} ")[:KEY_ID_CHARACTERS])

    async def _is_in_force(self, fingerprint: bytes) -> bool:
        return await self._registry.find_seed("file") == self._digest_file(fingerprint)

    def _digest_file(self, fingerprint: bytes) -> str:
        """Return the digest of the file. Its sign makes a version that stores no digests of fields apply it again."""
        return "=" + self._keyring.digest_seed(fingerprint)

    async def _judge(self, seed: Seed, judgement: ApplyOptions) -> AsyncIterator[Batch]:
        """Yield the batches in the order of writing.

        Each batch is compared with Redis after the caller has processed the previous one.
        """
        for name, realm_entry in seed.realms.items():
            yield await self._judge_realm(name, realm_entry, judgement)
        for client_entry in seed.clients:
            yield await self._judge_client(client_entry, judgement)
        with ThreadPoolExecutor(self._hashing_threads, thread_name_prefix="seed") as threads:
            users = UserSeeding(
                self._registry, self._keyring, self._pending_revocations, judgement, threads, 8 * self._hashing_threads
            )
            for texts in batches(seed.user_texts, self.users_per_batch):
                yield await users.judge(texts)
        if judgement.prune:
            pruning = Pruning(self._registry, self._pending_revocations, self.users_per_batch, self.shards)
            async for batch in pruning.judge(seed, judgement.renew):
                yield batch

    async def _judge_realm(self, name: str, entry: RealmEntry, judgement: ApplyOptions) -> Batch:
        """Compare a realm. Only seeds change the record of a realm, so a changed entry replaces all of it.

        After a change of the current key the realm is written again, encrypted with that key.
        """
        comparison = await self._compare(f"realm:{name}", entry)
        if comparison.stored == comparison.applied and not judgement.force:
            return Batch(1)
        is_changed = bool(comparison.changed) or comparison.is_unclear or judgement.force
        comparison = comparison._replace(changed=list_letters(entry))
        old = await self._registry.find_realm(name)
        if is_deleted(comparison, old, force=judgement.force):
            return Batch(1, write=partial(self._remember, f"realm:{name}", comparison))
        new = make_provider(name, entry, old, self._keyring)
        is_narrowed = old is not None and not set(old.default_roles) <= set(new.default_roles)
        planned = plan_change("realm", name, comparison, old, new, new, ends_sessions=is_narrowed)
        return Batch(
            1,
            (planned,) if planned and is_changed else (),
            partial(self._write_realm, name, new, comparison, is_narrowed),
        )

    async def _write_realm(
        self, name: str, new: IdentityProvider, comparison: Comparison, is_narrowed: bool, _: RedisLock
    ) -> None:
        await self._registry.put_seed(f"realm:{name}", comparison.mark_pending(comparison.changed, is_missing=True))
        if is_narrowed:
            await self._registry.add_pending_realm(name)
        await self._registry.put_realm(name, new)
        await self._registry.put_seed(f"realm:{name}", comparison.applied)

    async def _judge_client(self, entry: ClientEntry, judgement: ApplyOptions) -> Batch:
        name, force = f"client:{entry.client_id}", judgement.force
        comparison = await self._compare(name, entry)
        remember = Batch(1, write=partial(self._remember, name, comparison))
        if not (comparison.concerns_record or force):
            return remember
        old = await self._registry.find_client(entry.client_id)
        if is_deleted(comparison, old, force=force):
            return remember
        whole = is_whole(comparison, old, force=force)
        with_secret = whole or CLIENT_SECRET in comparison.changed
        made = await asyncio.to_thread(make_client, entry, old, with_secret=with_secret)
        new = plan_record(comparison, old, made, force=force)
        ends = old is not None and find_narrowing(old, new) is not None
        planned = plan_change("client", entry.client_id, comparison, old, made, new, ends_sessions=ends)
        if planned is None:
            return remember
        if comparison.is_unclear and not force:
            return Batch(1, unclear=(planned,))
        pending = comparison.mark_pending(list_letters(entry) if whole else comparison.changed, is_missing=old is None)
        return Batch(1, (planned,), partial(self._write_client, name, old, new, pending, comparison.applied))

    async def _write_client(
        self, name: str, old: Client | None, new: Client, pending: str, applied: str, _: RedisLock
    ) -> None:
        await self._registry.put_seed(name, pending)
        await self._registry.put_client(
            new,
            old_origins=list_origins(old.redirect_uris) if old else (),
            new_origins=list_origins(new.redirect_uris),
            narrowing=find_narrowing(old, new) if old else None,
        )
        await self._registry.put_seed(name, applied)

    async def _compare(self, name: str, entry: RealmEntry | ClientEntry) -> Comparison:
        return compare_entry(self._keyring, name, entry, await self._registry.find_seed(name))

    async def _remember(self, name: str, comparison: Comparison, _: RedisLock) -> None:
        """Store the entry's digests again, made with the current key."""
        if comparison.stored != comparison.applied:
            await self._registry.put_seed(name, comparison.applied)
