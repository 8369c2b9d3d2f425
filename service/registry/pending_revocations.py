"""The end of sessions that are no longer allowed after a change of a client, a realm or a user.

A pending revocation is recorded in Redis before the change or in the same script. The process that makes the change
then runs it. If that process is interrupted, a worker runs it, or the next process that makes a change of its kind.

Clauses: SPEC §3
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from service.protocol.client import Narrowing, may_keep_session
from service.protocol.scope import parse_realm, parse_scope
from service.protocol.user import User, identify_digest, identify_user
from service.redis_client.deadline import DEADLINE_SECONDS, UnreadableRecord
from service.redis_client.lock import RedisLock
from service.redis_client.managed_connection import TRUSTED_SECONDS
from service.redis_client.slots import SlotIsMoving
from service.store.registry.record_kind import split_parts
from service.store.registry.store import RegistryStore
from service.store.reports.session_scan import Session, SessionScan
from service.store.sessions.families import EndReason, UserEnding
from service.store.sessions.revocations import Revocations

SCAN_DELAY_SECONDS: Final = TRUSTED_SECONDS + DEADLINE_SECONDS + 0.7
"""The pause between two scans.

A request may use a cached record of the client for a while after the change. The pause is longer than that.
"""

REVOCATIONS_AT_ONCE: Final = 64

log = logging.getLogger("service.registry")


@dataclass(slots=True)
class PendingRevocations:
    _registry: RegistryStore
    _revocations: Revocations
    _session_scan: SessionScan
    scan_delay_seconds: float = SCAN_DELAY_SECONDS
    _trouble: str = ""

    async def run_all(self) -> None:
        """Run all pending revocations, whichever process recorded them.

        Those that need a record which cannot be read stay pending, with one line in the log.
        """
        if await self._registry.has_pending():
            async with self._registry.make_lock() as lock:
                left = len(await self.run_user_revocations(lock))
            trouble = f"records of {left} users cannot be read, or their slots are moving" if left else ""
            try:
                await self.run_session_scans()
            except UnreadableRecord as error:
                trouble = str(error)
            if trouble and trouble != self._trouble:
                log.warning("some sessions are not revoked yet: %s", trouble)
            self._trouble = trouble

    async def run_revocation_of(self, user: UserEnding) -> int:
        """End all sessions of one user with a pending revocation. The caller holds the lock.

        Returns the time of the mark.
        """
        revoked = await self._revocations.revoke_all(user.shard, user.digest, reason=user.reason)
        await self._registry.clear_pending_users([user])
        return revoked.marked_ms

    async def finish_rename(self, old: User) -> None:
        """Complete the rename that the record tells of, whichever process began it. The caller holds the lock.

        Sessions of the former name end before its record goes, and the id leads to both names until then. If another
        user has the new name meanwhile, the rename is undone.
        """
        users, ids, former = self._registry.users, self._registry.ids, old.identity
        new = replace(old, username=old.renamed_to, renamed_to="")
        present = await users.find(new.identity)
        if present is not None and present.id != old.id:
            await ids.put(old.id, former)
            await users.replace(old, replace(old, renamed_to=""))
            return
        await ids.put(old.id, former, new.identity)
        if present is None:
            await users.replace(None, new)
        with suppress(UnreadableRecord):  # the pending revocation ends that session once it can be read
            await self._revocations.revoke_all(former.shard, former.digest, reason="user_renamed")
        await ids.put(old.id, new.identity)
        await users.delete(former)

    async def finish_renames(self, endings: Collection[UserEnding]) -> list[UserEnding]:
        """Complete the renames among the endings. Returns those whose records cannot be read or written yet."""
        left = []
        for ending in endings:
            if ending.reason == "user_renamed":
                try:
                    user = await self._registry.users.find(identify_digest(ending.digest))
                    if user is not None and user.renamed_to:
                        await self.finish_rename(user)
                except (SlotIsMoving, UnreadableRecord):
                    left.append(ending)
        return left

    async def run_user_revocations(self, lock: RedisLock) -> Collection[UserEnding]:
        """End all sessions of each user with a pending revocation, including users whom an interrupted run missed.

        Returns the users who stay pending, because their slot is moving or a record cannot be read.
        """
        pending = await self._registry.list_pending_users()
        left: list[UserEnding] = []
        for some in split_parts(pending, REVOCATIONS_AT_ONCE):
            unreached = await self.finish_renames(some)
            unreached += await self._revocations.revoke_all_of(each for each in some if each not in unreached)
            await self._registry.clear_pending_users([each for each in some if each not in unreached])
            await lock.renew()
            left += unreached
        return left

    async def run_session_scans(self, on_wait: Callable[[], object] = lambda: None) -> None:
        """End the sessions that are no longer allowed after a client or a realm lost rights.

        The caller must not hold the registry's lock, so that others change records during the scans. `on_wait` is
        called if another process scans. The sessions of clients are scanned twice. The second scan ends the sessions
        that concurrent requests started with the former record of the client.
        """
        if not await self._registry.has_pending():
            return
        async with self._registry.make_lock_for("scan", on_wait) as lock:
            clients = await self._registry.list_pending_scans("pending_scans")
            realms = await self._registry.list_pending_scans("pending_realm_scans")
            if not (clients or realms):
                return
            await lock.renew_during(self._end_sessions(clients, realms))
            async with self._registry.make_lock():
                await self._registry.clear_pending_scans("pending_scans", clients)
                await self._registry.clear_pending_scans("pending_realm_scans", realms)

    async def _end_sessions(self, clients: Mapping[str, str], realms: Collection[str]) -> None:
        """Scan twice for the sessions of the clients, and once for those of the realms. The caller holds the lock.

        Raises UnreadableRecord after the last scan if a record could not be read.
        """
        ended, unreadable = 0, ""
        for pause_seconds in (0.0, self.scan_delay_seconds):
            await asyncio.sleep(pause_seconds)
            try:
                ended += await self._end_client_sessions(clients)
            except UnreadableRecord as error:
                unreadable = str(error)
        if clients:
            log.info("clients lost rights (%s); sessions revoked: %d", ", ".join(clients), ended)
        if realms:
            await self._end_realm_sessions(realms)
        if unreadable:
            raise UnreadableRecord(unreadable)

    async def _end_client_sessions(self, pending: Mapping[str, str]) -> int:
        """End the sessions that the changed clients no longer allow. Returns their number."""
        if not pending:
            return 0
        clients = {client_id: await self._registry.clients.find(client_id) for client_id in pending}

        def find_reason(session: Session) -> EndReason | None:
            client, mark = clients[session.client_id], pending[session.client_id]
            narrowing: Narrowing = "refresh" if mark.startswith("refresh:") else "grant_or_scope"
            if may_keep_session(client, narrowing, session.grant_type, parse_scope(session.scope)):
                return None
            return "client_deleted" if client is None else "client_disabled" if client.disabled else "client_changed"

        return await self._session_scan.end_sessions(pending, find_reason)

    async def _end_realm_sessions(self, pending_realms: Collection[str]) -> None:
        """End all sessions of each user who has a session with a role that the user no longer has.

        That is a role that the realm no longer grants by default and the user's record does not list. If the realm no
        longer exists, the sessions of all its users end. If a user's record cannot be read, raises UnreadableRecord at
        the end.
        """
        providers = {realm: await self._registry.realms.find(realm) for realm in pending_realms}
        ended, left, unreadable = set[str](), set[UserEnding](), ""
        async for batch in self._session_scan.scan_sessions():
            concerned = [
                (identify_user(realm, session.username), set(parse_scope(session.scope).roles))
                for _, session in batch
                if (realm := parse_realm(session.scope)) in pending_realms
            ]
            users = await self._registry.read_records([("user", identity) for identity, _ in concerned])
            for (identity, roles), (user, trouble) in zip(concerned, users, strict=True):
                provider, unreadable = providers[identity.realm], unreadable or trouble
                if user is None and provider is not None:
                    user = provider.make_unlisted_user(identity.realm, identity.username)
                has_roles = isinstance(user, User) and roles <= set(user.roles)
                is_kept = provider is not None and (has_roles or bool(trouble))
                if identity.digest in ended or is_kept:
                    continue
                ended.add(identity.digest)
                reason: EndReason = "realm_deleted" if provider is None else "role_removed"
                left.update(await self._revocations.revoke_all_of([UserEnding.of(identity, reason)]))
        await self._revocations.revoke_all_left(left)
        if unreadable:
            raise UnreadableRecord(unreadable)
        log.info("realms lost rights (%s); users logged out: %d", ", ".join(pending_realms), len(ended))
