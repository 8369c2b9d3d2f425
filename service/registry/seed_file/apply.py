"""The application of a seed to Redis: new entries are added and changed entries updated.

Entries that the seed lacks are left alone, unless it prunes.

One process applies a seed while the others wait. Entries are planned batch by batch, and secrets are hashed then. The
lock of the registry is held only while a batch is planned once more and written, and the sessions of its users are
ended. So changes of the console come in between. One script writes a record together with its entry as last applied: an
entry is written whole or not at all. Users whose sessions must end are recorded before that, as pending revocations. A
dry run plans, and writes nothing.

Clauses: SPEC §2.3, §3
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from service.crypto.keyring import Keyring
from service.gateway.access_record import SHARDS
from service.protocol.client import Client
from service.protocol.provider import IdentityProvider
from service.protocol.user import User, UserIdentity, identify_user
from service.redis_client.lock import LOCK_PAUSE_SECONDS, RedisLock
from service.registry.pending_revocations import PendingRevocations
from service.registry.records import keep_or_hash_all
from service.registry.seed_file.entries import BadSeed, Seed
from service.registry.seed_file.ids import check_ids, choose_ids
from service.registry.seed_file.plan import Candidate, Item, Planned, plan_edit, plan_removal
from service.registry.seed_file.read import load_seed, make_fingerprint
from service.registry.seed_file.report import MAX_REPORTED, Outcome, describe, record_planned, record_totals
from service.store.registry.record_kind import make_revision, split_parts
from service.store.registry.seeds import BEING_APPLIED
from service.store.registry.store import RegistryStore
from service.store.sessions.families import UserEnding
from service.system.process import count_usable_cores, lower_thread_priority

ENTRIES_PER_BATCH: Final = 200
BATCH_PAUSE_SECONDS: Final = 2 * LOCK_PAUSE_SECONDS
"""The pause between two batches. A change of the console that waits for the lock gets it in the pause."""

_SHARDS_AT_ONCE: Final = 128

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Seeding:
    """The application of seeds, and its dry run. Pruning looks for users in `shards`, which are all that exist."""

    _registry: RegistryStore
    _keyring: Keyring
    _pending_revocations: PendingRevocations
    entries_per_batch: int = ENTRIES_PER_BATCH
    batch_pause_seconds: float = BATCH_PAUSE_SECONDS
    shards: Sequence[str] = SHARDS

    async def apply(
        self,
        seed: Seed,
        *,
        prune: bool = False,
        force: bool = False,
        on_progress: Progress = lambda _done, _total: None,
        on_wait: Callable[[], object] = lambda: None,
        actor: str = "service",
    ) -> Outcome:
        """Apply the seed. If another process applies one, wait for it; then there is usually nothing left to do.

        `on_progress` is called at the start and after each batch, with the number of entries that are done and the
        number of all. `on_wait` is called if another process applies a seed. `actor` is recorded in the security
        events.
        """
        async with self._registry.make_lock_for("seed", on_wait) as turn:
            return await turn.renew_during(self._apply(turn, seed, force, prune, on_progress, actor))

    async def apply_file(
        self, path: Path, min_password_characters: int, on_progress: Progress = lambda _done, _total: None
    ) -> Outcome:
        """Apply the seed file.

        A file that is in force unchanged is not parsed by a worker, since it had no mistakes when applied. Of
        several workers that wait for the lock, one parses the file.
        """
        fingerprint = await asyncio.to_thread(make_fingerprint, path)
        if await self._is_in_force(fingerprint):
            await self._pending_revocations.run_all()
            return Outcome(Seed())
        async with self._registry.make_lock_for("seed") as turn:
            if await self._is_in_force(fingerprint):
                return Outcome(Seed())
            seed = await turn.renew_during(asyncio.to_thread(load_seed, path, min_password_characters))
            return await turn.renew_during(self._apply(turn, seed, False, False, on_progress, "service"))

    async def compare(self, seed: Seed, *, prune: bool = False, force: bool = False) -> Outcome:
        """Return what `apply` would do now, with the details of each change. Writes nothing and takes no lock."""
        await check_ids(self._registry, self._keyring, seed, force=force)
        outcome = Outcome(seed)
        async for _, batch in self._run(seed, force, prune, is_dry=True):
            for planned in batch:
                outcome.add(planned)
            outcome.details += [describe(planned) for planned in batch if planned.act is not None]
        return outcome

    async def _is_in_force(self, fingerprint: bytes) -> bool:
        digest, _, mark = (await self._registry.seeds.find("file") or "").partition(" ")
        return bool(mark) and digest == self._keyring.digest_seed(fingerprint)

    async def _apply(
        self, turn: RedisLock, seed: Seed, force: bool, prune: bool, on_progress: Progress, actor: str
    ) -> Outcome:
        outcome = Outcome(seed)
        is_needed = force or prune or not await self._is_in_force(seed.fingerprint)
        if is_needed:
            await check_ids(self._registry, self._keyring, seed, force=force)
            # A start applies this file again unless it is finished.
            mark = await self._registry.seeds.read_mark()
            await self._registry.seeds.put("file", f"{BEING_APPLIED} {mark}")
            done = 0
            on_progress(done, seed.size)
            try:
                async for entries, batch in self._run(seed, force, prune, is_dry=False):
                    for planned in batch:
                        is_reported = planned.ending is not None or outcome.changes < MAX_REPORTED
                        if planned.act is not None and is_reported:
                            record_planned(planned, actor, force=force)
                        outcome.add(planned)
                    done += entries
                    on_progress(done, seed.size)
            finally:
                record_totals(outcome, actor)
        await self._pending_revocations.run_all()
        if is_needed:
            await turn.renew()  # fails if the store was emptied meanwhile
            # If an entry was left out, the next start applies the file again.
            state = self._keyring.digest_seed(seed.fingerprint) if outcome.is_whole else BEING_APPLIED
            await self._registry.seeds.put("file", f"{state} {mark or make_revision()}")
        return outcome

    async def _run(
        self, seed: Seed, force: bool, prune: bool, *, is_dry: bool
    ) -> AsyncIterator[tuple[int, list[Planned]]]:
        """Plan and write all batches. Yields the number of entries of each batch, and its changes.

        After a batch that was written it pauses, so that a change of the console gets the lock. The plan that is
        written is made under the lock, when all expected hashes are made.
        """
        items, given = list(_list_items(seed)), frozenset(user.id for user in seed.users)
        pause = 0.0
        with ThreadPoolExecutor(count_usable_cores(), "seed", initializer=lower_thread_priority) as threads:
            async for batch in self._list_batches(items, prune):
                plan = partial(self._plan, batch, force, given, dict[str | UserIdentity, str](), threads)
                await asyncio.sleep(pause)
                planned, pause = await plan(), 0.0
                if not is_dry and any(each.act or each.applied is not None for each in planned):
                    async with self._registry.make_lock() as lock:
                        await self._pending_revocations.run_user_revocations(lock)  # completes renames
                        planned = await plan()
                        await self._write(planned, lock)
                    pause = self.batch_pause_seconds
                yield sum(item.entry is not None for item in batch), planned

    async def _list_batches(self, items: Sequence[Item], prune: bool) -> AsyncIterator[Sequence[Item]]:
        """Yield the entries of the file, and if `prune`, those that an earlier seed applied and the file lacks.

        Of the latter users come first, because users of a realm log in through it. Users are looked for in `shards`.
        They have no name, since the store keeps none.
        """
        for batch in split_parts(items, self.entries_per_batch):
            yield batch
        if not prune:
            return
        kept = {item.seed_name for item in items}
        digests = {item.identity.digest for item in items if item.identity is not None}
        for shards in split_parts(self.shards, _SHARDS_AT_ONCE):
            seeded = await self._registry.seeds.list_users(shards)
            users = [Item("user", "", None, user) for user in seeded if user.digest not in digests]
            for batch in split_parts(users, self.entries_per_batch):
                yield batch
        left = [name.partition(":") for name in sorted((await self._registry.seeds.list_all()).keys() - kept)]
        others = [Item("client" if kind == "client" else "realm", name) for kind, _, name in left if name]
        for batch in split_parts(others, self.entries_per_batch):
            yield batch

    async def _plan(
        self,
        items: Sequence[Item],
        force: bool,
        given: Set[str],
        hashes: dict[str | UserIdentity, str],
        threads: ThreadPoolExecutor,
    ) -> list[Planned]:
        """Return the plans of the entries that may have to be written.

        `given` are the ids in the file, and `hashes` holds hashes that were made before.
        """
        if items[0].entry is None:
            olds = await self._registry.read_records([item.record_name for item in items])
            return [plan_removal(item, *old) for item, old in zip(items, olds, strict=True)]
        stored = await self._registry.seeds.find_many([item.seed_name for item in items])
        pairs = zip(items, stored, strict=True)
        edits = [(item, plan_edit(self._keyring, item, text, force=force)) for item, text in pairs]
        edits = [each for each in edits if force or each[0].kind == "realm" or each[1].stored != each[1].applied]
        olds = await self._registry.read_records([item.record_name for item, _ in edits])
        candidates = [Candidate(*each, *old, force) for each, old in zip(edits, olds, strict=True)]
        missing = [each for each in candidates if each.needs_hash and each.item.seed_name not in hashes]
        secrets = [(each.item.plain_secret or "", each.old_hash) for each in missing]
        made = await keep_or_hash_all(secrets, threads)
        hashes.update(zip((each.item.seed_name for each in missing), made, strict=True))
        unlisted, ids = await self._list_unlisted(candidates), await choose_ids(self._registry, candidates, given)
        names = [each.item.seed_name for each in candidates]
        return [
            each.plan(self._keyring, hashes.get(name), unlisted.get(name), ids.get(name, ""))
            for name, each in zip(names, candidates, strict=True)
        ]

    async def _list_unlisted(self, candidates: Sequence[Candidate]) -> dict[str | UserIdentity, User]:
        """Return what users without a record in an external realm were until now: they had its default roles."""
        users = [each.item.identity for each in candidates if each.old is None and each.item.identity is not None]
        providers = {realm: await self._registry.realms.find(realm) for realm in {user.realm for user in users}}
        return {
            user: provider.make_unlisted_user(user.realm, user.username)
            for user in users
            if (provider := providers[user.realm]) is not None
        }

    async def _write(self, batch: Sequence[Planned], lock: RedisLock) -> None:
        ends = [(each.item.identity, each.ending) for each in batch]
        await self._registry.add_pending_users([UserEnding.of(user, why) for user, why in ends if user and why])
        added = [each.new for each in batch if isinstance(each.new, User) and each.act == "add" and each.new.id]
        if taken := await self._registry.ids.claim([(user.id, user.identity) for user in added]):
            raise BadSeed(tuple(f"other users were given these ids meanwhile: {user_id}" for user_id in taken))
        await asyncio.gather(*map(self._write_one, batch))
        await self._pending_revocations.run_user_revocations(lock)
        gone = [each.old.id for each in batch if isinstance(each.old, User) and each.act == "remove"]
        await self._registry.ids.release(gone)

    async def _write_one(self, planned: Planned) -> None:
        item, old, new, applied, registry = planned.item, planned.old, planned.new, planned.applied, self._registry
        if item.kind == "realm" and applied is not None:
            provider = new if isinstance(new, IdentityProvider) else None
            await registry.realms.put(item.name, provider, applied=applied, ends_sessions=planned.ending is not None)
        elif planned.act is None and applied is not None:
            await registry.seeds.put(item.seed_name, applied)
        elif planned.act == "remove" and item.identity is not None:
            await registry.users.remove(item.identity)
        elif planned.act == "remove" and isinstance(old, Client):
            await registry.clients.delete(old, is_forgotten=True)
        elif planned.act is not None and isinstance(new, User):
            await registry.users.put(new, applied)
        elif planned.act is not None and isinstance(new, Client):
            await registry.clients.put(new, old if isinstance(old, Client) else None, applied=applied)


def _list_items(seed: Seed) -> Iterator[Item]:
    """Yield the entries in the order of writing."""
    for name, realm in seed.realms.items():
        yield Item("realm", name, realm)
    for client in seed.clients:
        yield Item("client", client.client_id, client)
    for user in seed.users:
        yield Item("user", user.username, user, identify_user(user.realm, user.username))
