"""The part of a seed that adds and changes users, batch by batch.

Clauses: SPEC §2.3, §3
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from service.crypto.keyring import Keyring
from service.protocol.user import User, UserIdentity, identify_user, is_narrowed
from service.redis_client.lock import RedisLock
from service.registry.pending_revocations import PendingRevocations
from service.registry.records import make_user
from service.registry.seed_file.batch import ApplyOptions, Batch, batches
from service.registry.seed_file.field_digests import PASSWORD, Comparison, compare_entry, list_letters
from service.registry.seed_file.plan import Planned, is_deleted, is_whole, plan_change, plan_record
from service.registry.seed_file.schema import UserEntry, read_user_entry
from service.store.registry import RegistryStore


class _ComparedUser(NamedTuple):
    entry: UserEntry
    identity: UserIdentity
    comparison: Comparison


class _Candidate(NamedTuple):
    """A user whose record may be written. `old` is the record in Redis."""

    entry: UserEntry
    identity: UserIdentity
    comparison: Comparison
    old: User | None
    is_whole: bool

    @property
    def needs_hash(self) -> bool:
        """True if the entry has a plain password that must be hashed or compared with the hash of the record."""
        return self.entry.password is not None and self.uses_password

    @property
    def uses_password(self) -> bool:
        return self.is_whole or PASSWORD in self.comparison.changed

    def make_user(self) -> User:
        return make_user(self.entry, self.old, with_password=self.uses_password)


class _PlannedUser(NamedTuple):
    """The change of a user. `pending` and `applied` are the digests to store before and after it is written."""

    planned: Planned
    user: User
    pending: str
    applied: str


@dataclass(frozen=True, slots=True)
class UserSeeding:
    """Compares user entries with Redis. `threads` hash plain passwords, because the hash is slow."""

    _registry: RegistryStore
    _keyring: Keyring
    _pending_revocations: PendingRevocations
    _options: ApplyOptions
    _threads: ThreadPoolExecutor
    _hashes_at_once: int

    async def judge(self, texts: Sequence[bytes]) -> Batch:
        """Return the batch for these entries, each given as JSON."""
        compared = await self._compare([read_user_entry(text) for text in texts])
        candidates = await self._list_candidates(compared)
        users = await self._make_users(candidates)
        previous = await self._list_previous_users(candidates)
        plans, unclear, kept = list[_PlannedUser](), list[Planned](), set[UserIdentity]()
        for candidate, made, before in zip(candidates, users, previous, strict=True):
            plan = self._plan(candidate, made, before)
            if plan is None:
                continue
            kept.add(candidate.identity)
            if candidate.comparison.is_unclear and not self._options.force:
                unclear.append(plan.planned)
            else:
                plans.append(plan)
        remembered = [
            (identity, comparison.applied)
            for _, identity, comparison in compared
            if comparison.stored != comparison.applied and identity not in kept
        ]
        return Batch(
            len(texts),
            tuple(plan.planned for plan in plans),
            partial(self._write, plans, remembered),
            sum(candidate.needs_hash for candidate in candidates),
            tuple(unclear),
        )

    async def _compare(self, entries: Sequence[UserEntry]) -> list[_ComparedUser]:
        identities = [identify_user(entry.realm, entry.username) for entry in entries]
        stored = await self._registry.find_user_seeds(identities)
        return [
            _ComparedUser(entry, identity, compare_entry(self._keyring, f"user:{identity.subject}", entry, known))
            for entry, identity, known in zip(entries, identities, stored, strict=True)
        ]

    async def _list_candidates(self, compared: Sequence[_ComparedUser]) -> list[_Candidate]:
        """Return the users whose records may have to be written, with their records in Redis."""
        force = self._options.force
        concerned = [each for each in compared if each.comparison.concerns_record or force]
        olds = await self._registry.find_users([each.identity for each in concerned])
        return [
            _Candidate(*each, old, is_whole(each.comparison, old, force=force))
            for each, old in zip(concerned, olds, strict=True)
            if not is_deleted(each.comparison, old, force=force)
        ]

    async def _make_users(self, candidates: Sequence[_Candidate]) -> list[User]:
        made = dict[UserIdentity, User]()
        loop = asyncio.get_running_loop()
        for batch in batches((each for each in candidates if each.needs_hash), self._hashes_at_once):
            work = (loop.run_in_executor(self._threads, candidate.make_user) for candidate in batch)
            made.update(zip((each.identity for each in batch), await asyncio.gather(*work), strict=True))
            await self._options.renew()
        return [made.get(each.identity) or each.make_user() for each in candidates]

    async def _list_previous_users(self, candidates: Sequence[_Candidate]) -> Sequence[User | None]:
        """Return what each user was until now.

        A user without a record in an external realm had the default roles of the realm.
        """
        realms = {each.identity.realm for each in candidates if each.old is None}
        providers = {realm: await self._registry.find_realm(realm) for realm in realms}

        def list_previous() -> Iterator[User | None]:
            for each in candidates:
                provider = providers.get(each.identity.realm)
                if each.old is None and provider is not None:
                    yield provider.make_unlisted_user(each.identity.realm, each.entry.username)
                else:
                    yield each.old

        return list(list_previous())

    def _plan(self, candidate: _Candidate, made: User, previous: User | None) -> _PlannedUser | None:
        comparison, old = candidate.comparison, candidate.old
        new = plan_record(comparison, old, made, force=self._options.force)
        ends = previous is not None and is_narrowed(previous, new)
        planned = plan_change("user", new.username, comparison, old, made, new, ends_sessions=ends, realm=new.realm)
        if planned is None:
            return None
        letters = list_letters(candidate.entry) if candidate.is_whole else comparison.changed
        return _PlannedUser(planned, new, comparison.mark_pending(letters, is_missing=old is None), comparison.applied)

    async def _write(
        self, plans: Sequence[_PlannedUser], remembered: Sequence[tuple[UserIdentity, str]], lock: RedisLock
    ) -> None:
        """Write users. `remembered` are digests of entries without a change, made with the current key."""
        await self._registry.put_user_seeds([(plan.user.identity, plan.pending) for plan in plans])
        narrowed = [plan.user.identity for plan in plans if plan.planned.ends_sessions]
        await self._registry.add_pending_users(narrowed)
        await self._registry.put_users([plan.user for plan in plans])
        await self._pending_revocations.run_user_revocations(lock)
        applied = [(plan.user.identity, plan.applied) for plan in plans]
        await self._registry.put_user_seeds([*applied, *remembered])
