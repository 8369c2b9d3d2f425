"""Changes to single clients and users from the console, with the end of the sessions that each change requires.

Changes are made under the registry's lock, so a seed that is being applied cannot overwrite one. A field of a seed
file is not applied again until that field changes in the file. So the next start does not undo a change that was made
here.

Clauses: SPEC §2.3, §3, §6
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from service.observability.audit import record_event
from service.protocol.client import Client
from service.protocol.scope import MAIN_REALM
from service.protocol.user import User, UserIdentity, is_narrowed
from service.registry.pending_revocations import PendingRevocations
from service.registry.record_changes import list_events
from service.store.registry import RegistryStore


class ChangeRefused(Exception):
    """The change was refused, and nothing was changed. The message is a sentence with the reason."""


@dataclass(frozen=True, slots=True)
class RegistryEditor:
    """The editor of clients and users. When a method returns, the sessions that it ends have ended on every worker.

    `_actor` is recorded in the security events. `_on_wait` is called if another process has the registry's lock, for
    example to apply a seed.
    """

    _registry: RegistryStore
    _pending_revocations: PendingRevocations
    _actor: str
    _on_wait: Callable[[], object]

    async def create_client(self, client: Client) -> None:
        async with self._changing("client_created", client_id=client.client_id):
            if await self._registry.find_client(client.client_id) is not None:
                raise ChangeRefused(f"the client {client.client_id} already exists")
            await self._registry.put_client(client)

    async def update_client(self, old: Client, new: Client) -> None:
        """Replace the record of a client. Sessions that depended on something that the new record lacks end.

        Raises ChangeRefused if the record is no longer `old`.
        """
        async with self._changing(*list_events("client", old, new), client_id=old.client_id):
            if await self._registry.find_client(old.client_id) != old:
                raise ChangeRefused(f"the client {old.client_id} was changed meanwhile; repeat the command")
            await self._registry.put_client(new, old)

    async def delete_client(self, client_id: str) -> None:
        """Delete the client. It gets no new tokens from now on, and on return its sessions have ended."""
        async with self._changing("client_deleted", client_id=client_id):
            client = await self._registry.find_client(client_id)
            if client is None:
                raise ChangeRefused(f"there is no client {client_id}")
            await self._registry.delete_client(client)

    async def create_user(self, user: User) -> None:
        """Create a user.

        In an external realm the user may have logged in before without a record, with the default roles of the realm.
        If the new record lacks one of these roles, the user's sessions end.
        """
        async with self._changing("user_created", username=user.username, realm=user.realm):
            if await self._registry.find_user(user.identity) is not None:
                raise ChangeRefused(f"the user {user.username} already exists in realm {user.realm}")
            unlisted = await self._find_unlisted(user.identity)
            await self._put_user(user, ends_sessions=unlisted is not None and is_narrowed(unlisted, user))

    async def update_user(self, old: User, new: User, *, keep_sessions: bool = False) -> None:
        """Replace the record of a user. If the new one lacks a role or has another password, the user's sessions end.

        With `keep_sessions` they do not. Raises ChangeRefused if the record is no longer `old`.
        """
        async with self._changing(*list_events("user", old, new), username=old.username, realm=old.realm):
            if await self._registry.find_user(old.identity) != old:
                raise ChangeRefused(f"the user {old.username} was changed meanwhile; repeat the command")
            await self._put_user(new, ends_sessions=is_narrowed(old, new) and not keep_sessions)

    async def disable_user(self, identity: UserIdentity) -> None:
        """Disable the user and end the user's sessions.

        A user of an external realm who has no record gets one, which says that the user is disabled.
        """
        async with self._changing("user_disabled", username=identity.username, realm=identity.realm):
            user = await self._registry.find_user(identity) or await self._find_unlisted(identity)
            if user is None:
                raise ChangeRefused(f"there is no user {identity.username} in realm {identity.realm}")
            await self._put_user(msgspec.structs.replace(user, disabled=True), ends_sessions=True)

    async def delete_user(self, identity: UserIdentity) -> None:
        async with self._changing("user_deleted", username=identity.username, realm=identity.realm):
            if await self._registry.find_user(identity) is None:
                raise ChangeRefused(f"there is no user {identity.username} with a record in realm {identity.realm}")
            await self._registry.add_pending_users([identity])
            await self._registry.delete_user(identity)

    @asynccontextmanager
    async def _changing(self, *events: str, **fields: Any) -> AsyncIterator[None]:
        """Hold the lock during a change, then run pending revocations, even if the change is refused.

        These include the pending revocations of an earlier change that was interrupted. Only a change of a client scans
        sessions, without the lock, so a change of a user waits for no scan. The events are recorded as soon as the
        record has changed, so that a change cannot be hidden by interrupting what follows.
        """
        try:
            async with self._registry.make_lock(self._on_wait) as lock:
                try:
                    yield
                    fields |= {"actor": self._actor, "reason": "console"}
                    for event in events:
                        record_event(event, **fields)
                finally:
                    await self._pending_revocations.run_user_revocations(lock)
        finally:
            if "client_id" in fields:
                await self._pending_revocations.run_session_scans(self._on_wait)

    async def _find_unlisted(self, identity: UserIdentity) -> User | None:
        """Return a user with the default roles of the external realm, as if the user had no record there.

        Returns None for realm main. Raises ChangeRefused if there is no such realm.
        """
        if identity.realm == MAIN_REALM:
            return None
        provider = await self._registry.find_realm(identity.realm)
        if provider is None:
            raise ChangeRefused(f"there is no realm {identity.realm}")
        return provider.make_unlisted_user(identity.realm, identity.username)

    async def _put_user(self, new: User, *, ends_sessions: bool) -> None:
        if ends_sessions:
            await self._registry.add_pending_users([new.identity])
        await self._registry.put_user(new)
