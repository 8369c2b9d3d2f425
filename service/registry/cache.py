"""Each worker's cache of clients, users and realms, which Redis invalidates.

Reads and invalidations come over one connection, as for bearer lookups (redis_client/managed_connection.py). So no
stale record is stored after its invalidation, and without a live connection a cached record is used for one second at
most. If a record cannot be read again, the caller gets StoreUnavailable and never an old record.

A record is cached from its second use on. The absence of a record is not cached, so a record that is added takes effect
at once. Redis does not track its key, so that made-up names cost Redis no memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from service.observability.metrics import CacheCounts, count_redis_call
from service.protocol.client import Client
from service.protocol.provider import IdentityProvider
from service.protocol.user import User, UserIdentity
from service.redis_client.deadline import read_clock
from service.redis_client.managed_connection import ManagedConnection
from service.redis_client.router import Router
from service.redis_client.tracked_cache import STALE, UNTIL_INVALIDATED, TrackedCache
from service.store.registry.clients import ENABLED_CLIENTS, ORIGINS
from service.store.registry.realms import REALMS
from service.store.registry.record_kind import KeyCommand, RecordKind
from service.store.registry.users import USERS

MAX_ENTRIES: Final = 10_000
"""The bound for each kind of record. The records that were not used for longest are dropped first."""

_MISSING: Final = object()

Name = TypeVar("Name")
Record = TypeVar("Record")


class RegistryCache(Generic[Name, Record]):
    """The cache for one kind of record. It gets the invalidations of that kind from `router`."""

    def __init__(self, kind: RecordKind[Name, Record], router: Router, counts: CacheCounts) -> None:
        self._kind = kind
        self._router = router
        self._counts = counts
        self._entries: TrackedCache[str, Record] = TrackedCache(MAX_ENTRIES)
        router.listen(kind.kind, self.invalidate)

    async def find(self, name: Name) -> Record:
        self._counts.count_lookup()
        command = self._kind.command(name)
        record = self._entries.get(command[1], _MISSING)
        if record is not _MISSING:
            return record  # type: ignore[return-value] # a sentinel has no type of its own
        self._counts.count_miss()
        return await self._read(command, is_tracked=bool(self._entries.find_last(command[1])))

    def forget(self, name: Name) -> None:
        """Forget the record of this name. Call this if a script found that the record has changed."""
        self._entries.discard(self._kind.command(name)[1])

    def invalidate(self, keys: Sequence[bytes] | None) -> None:
        """Forget the records of these keys, or all records if `keys` is None."""
        if keys is None:
            self._entries.clear()
            return
        for key in keys:
            self._entries.discard(key.decode(errors="replace"))

    async def _read(self, command: KeyCommand, *, is_tracked: bool) -> Record:
        started = read_clock()
        keep = functools.partial(self._keep, command[1], is_tracked)
        is_answered = False
        try:
            record = await self._router.ask(command[1], command, keep, is_read=True, is_tracked=is_tracked)
            is_answered = True
        finally:
            count_redis_call("registry", read_clock() - started, not is_answered)
        return record

    def _keep(self, key: str, is_tracked: bool, source: ManagedConnection | None, answer: Any) -> Record:
        record = self._kind.parse(answer)
        if source is None or not self._router.serves(key, source):
            return record  # not cached: this connection may get no invalidations for the slot
        if record:
            self._entries.put(key, record, UNTIL_INVALIDATED if is_tracked else STALE, source.trust)
        else:
            self._entries.discard(key)
        return record


ClientCache = RegistryCache[str, Client | None]
OriginCache = RegistryCache[str, bool]
RealmCache = RegistryCache[str, IdentityProvider | None]
UserCache = RegistryCache[UserIdentity, User | None]


class RegistryCaches:
    """The caches of one worker, one for each kind of record. They share the connections of `router`.

    `clock_offset_ms` moves the clock and is for tests only.
    """

    def __init__(self, router: Router, clock_offset_ms: Callable[[], int] = int) -> None:
        self._router = router
        self._clock_offset_ms = clock_offset_ms
        self.clients = ClientCache(ENABLED_CLIENTS, router, CacheCounts("clients"))
        self.origins = OriginCache(ORIGINS, router, CacheCounts("origins"))
        self.realms = RealmCache(REALMS, router, CacheCounts("realms"))
        self.users = UserCache(USERS, router, CacheCounts("users"))

    def now_ms(self) -> int:
        """Return Redis time in ms without asking Redis. Raises StoreUnavailable before the first answer of Redis."""
        return self._router.now_ms() + self._clock_offset_ms()
