"""The end of sessions that are no longer allowed after a change of a client, a realm or a user.

Pending revocations are noted in Redis before or with the change, and the process that made the change runs them. If
that process is interrupted, the next holder of the registry's lock runs them.

Clauses: SPEC §3
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from service.protocol.client import Narrowing, may_keep_session
from service.protocol.scope import parse_scope
from service.redis_client.deadline import DEADLINE_SECONDS
from service.redis_client.lock import RedisLock
from service.redis_client.managed_connection import TRUSTED_SECONDS
from service.store.registry import RegistryStore
from service.store.reports.session_scan import Session, SessionScan
from service.store.revocations import Revocations

SCAN_DELAY_SECONDS: Final = TRUSTED_SECONDS + DEADLINE_SECONDS + 0.7
"""The pause between two scans.

It is longer than a request can still issue tokens under a registration that it read from a cache before the change.
"""

REVOCATIONS_AT_ONCE: Final = 64

log = logging.getLogger("service.registry")


@dataclass(slots=True)
class PendingRevocations:
    _registry: RegistryStore
    _revocations: Revocations
    _session_scan: SessionScan
    scan_delay_seconds: float = SCAN_DELAY_SECONDS

    async def settle(self, lock: RedisLock) -> None:
        """Run all pending revocations, also those that another process noted."""
        await self.settle_revocations(lock)
        await self.settle_sweeps(lock)

    async def settle_revocations(self, lock: RedisLock) -> None:
        """End all sessions of each user with a pending revocation, also of those that an interrupted run left."""
        owed = await self._registry.list_pending_users()
        left = []
        for start in range(0, len(owed), REVOCATIONS_AT_ONCE):
            some = owed[start : start + REVOCATIONS_AT_ONCE]
            unreached = await self._revocations.revoke_all_of(some, reason="withdrawn")
            await self._registry.settle_revocations([each for each in some if each not in unreached])
            await lock.renew()
            left += unreached
        await self._revocations.revoke_all_left(left, reason="withdrawn")
        await self._registry.settle_revocations(left)

    async def settle_sweeps(self, lock: RedisLock) -> None:
        """End the sessions that a narrowed client or realm no longer allows.

        The sessions of clients are scanned twice. The second scan ends those that requests under way still issued under
        the wider registration.
        """
        owed, realms = await self._registry.list_pending_clients(), await self._registry.list_pending_realms()
        if not (owed or realms):
            return
        ended = await self._sweep_clients(owed, lock)
        await asyncio.sleep(self.scan_delay_seconds)
        await lock.renew()
        ended += await self._sweep_clients(owed, lock)
        if owed:
            await self._registry.settle_sweeps(list(owed))
            log.info("clients narrowed: %s; sessions ended: %d", ", ".join(owed), ended)
        if realms:
            await self._sweep_realms(realms, lock)

    async def _sweep_clients(self, owed: Mapping[str, Narrowing], lock: RedisLock) -> int:
        """End the sessions that the narrowed clients may not keep. Returns their number."""
        if not owed:
            return 0
        clients = {client_id: await self._registry.find_client(client_id) for client_id in owed}

        def may_keep(session: Session) -> bool:
            client, narrowing = clients[session.client_id], owed[session.client_id]
            return may_keep_session(client, narrowing, session.grant_type, parse_scope(session.scope))

        ended = await self._session_scan.end_sessions(owed, may_keep, after_batch=lock.renew)
        await lock.renew()
        return ended

    async def _sweep_realms(self, owed: Collection[str], lock: RedisLock) -> None:
        """End all sessions of each user who has a session with a role that the user no longer has.

        That is a role that the realm no longer grants by default and the user's record does not list. If the realm no
        longer exists, the sessions of all its users end.
        """
        providers = {realm: await self._registry.find_realm(realm) for realm in owed}
        ended, left = set[tuple[str, str]](), set[tuple[str, str]]()
        async for batch in self._session_scan.scan_sessions(after_batch=lock.renew):
            found = [(session.identity, set(parse_scope(session.scope).roles)) for session in batch]
            concerned = [(identity, roles) for identity, roles in found if identity.realm in owed]
            users = await self._registry.find_users([identity for identity, _ in concerned])
            for (identity, roles), user in zip(concerned, users, strict=True):
                provider = providers[identity.realm]
                if user is None and provider is not None:
                    user = provider.make_unlisted_user(identity.realm, identity.username)
                is_kept = provider is not None and user is not None and roles <= set(user.roles)
                place = identity.shard, identity.subject
                if place in ended or is_kept:
                    continue
                ended.add(place)
                if any(shard == identity.shard for shard, _ in left):
                    left.add(place)  # the slot of this shard is known to be moving, and an attempt would only wait
                else:
                    left.update(await self._revocations.revoke_all_of([place], reason="withdrawn"))
                    await lock.renew()
        await self._revocations.revoke_all_left(left, reason="withdrawn")
        await lock.renew()
        await self._registry.clear_pending_realms(owed)
        log.info("realms narrowed: %s; users whose sessions ended: %d", ", ".join(owed), len(ended))
