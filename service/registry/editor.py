"""Changes to single clients and users, with the end of the sessions that each change requires.

The console makes them, and those to users also a client with the right to it. They are made under the registry's lock,
so a seed that is being applied cannot overwrite one. A field of a seed file is not applied again until that field
changes in the file. So the next start does not undo a change that was made here.

Clauses: SPEC §2.3, §3, §6
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from service.protocol.client import Client
from service.protocol.scope import MAIN_REALM
from service.protocol.user import User, UserIdentity, find_user_narrowing
from service.redis_client.deadline import StoreUnavailable
from service.registry.pending_revocations import PendingRevocations
from service.registry.record_changes import record_change
from service.store.registry.store import RegistryStore
from service.store.sessions.families import EndReason, UserEnding

Changed = TypeVar("Changed", Client, User)


class ChangeRefused(Exception):
    """The change was refused, and nothing was changed. The message is a sentence with the reason."""


class Taken(ChangeRefused):
    """Another user has the value that this field of a user was to have."""

    def __init__(self, field: str, value: str, holder: str) -> None:
        super().__init__(f"{field} {value} already belongs to user {holder}")
        self.field = field


def replacing(old: Changed, new: Changed) -> Callable[[Changed], Changed]:
    """Return the change from `old` to `new`. It raises ChangeRefused if the record is no longer `old`."""

    def change(present: Changed) -> Changed:
        if present != old:
            raise ChangeRefused("the record was changed at the same time; run the command again")
        return new

    return change


@dataclass(frozen=True, slots=True)
class RegistryEditor:
    """The editor of clients and users. When a method returns, the sessions that it ends have ended on every worker.

    `_origin` are fields of the security events: `actor`, `reason` and more. A change is recorded as soon as it is
    written, so that it cannot be hidden by interrupting what follows. `on_wait` is called if another process has
    the registry's lock, for example to apply a seed. After `wait_seconds` a change of a user raises LockHeld, unless
    that is None. `on_written` is called once a record is stored. The revocations that follow may be of other
    changes, take seconds and be interrupted.
    """

    _registry: RegistryStore
    _pending_revocations: PendingRevocations
    _origin: Mapping[str, str]
    on_wait: Callable[[], object] = lambda: None
    wait_seconds: float | None = None

    async def get_client(self, client_id: str) -> Client:
        """Return the client. Raises ChangeRefused if there is none."""
        client = await self._registry.clients.find(client_id)
        if client is None:
            raise ChangeRefused(f"client {client_id} not found")
        return client

    async def create_client(self, client: Client, *, on_written: Callable[[], object]) -> None:
        async with self._changing(scans=True):
            if await self._registry.clients.find(client.client_id) is not None:
                raise ChangeRefused(f"client {client.client_id} already exists")
            await self._registry.clients.put(client)
            record_change(None, client, **self._origin)
            on_written()

    async def change_client(
        self,
        client_id: str,
        change: Callable[[Client], Client],
        *,
        on_written: Callable[[], object] = lambda: None,
    ) -> None:
        """Replace a client's record by the one that `change` returns. Sessions that need what it lacks end."""
        async with self._changing(scans=True):
            old = await self.get_client(client_id)
            new = change(old)
            await self._registry.clients.put(new, old)
            record_change(old, new, **self._origin)
            on_written()

    async def delete_client(self, client_id: str) -> None:
        """Delete the client. It gets no new tokens from now on, and on return its sessions have ended."""
        async with self._changing(scans=True):
            client = await self.get_client(client_id)
            await self._registry.clients.delete(client)
            record_change(client, None, **self._origin)

    async def create_user(self, user: User) -> None:
        """Create a user.

        In an external realm the user may have logged in before without a record, with the default roles of the realm.
        If the new record lacks one of these roles, the user's sessions end.
        """

        def create(old: User | None) -> User:
            if old is not None:
                raise ChangeRefused(f"user {user.username} already exists in realm {user.realm}")
            return user

        await self.put_user(user.identity, create)

    async def change_user(
        self,
        identity: UserIdentity,
        change: Callable[[User], User],
        *,
        keep_sessions: bool = False,
        or_unlisted: bool = False,
    ) -> None:
        """Replace a user's record by the one that `change` returns. The user's sessions end if it takes rights away
        or leaves the user disabled.

        A new password takes rights away unless `keep_sessions`. With `or_unlisted` a user of an external realm who has
        no record gets one.
        """
        async with self._changing(identity.digest):
            old = await self._get_user(identity, or_unlisted=or_unlisted)
            new = change(old)
            reason = find_user_narrowing(old, new) or ("user_disabled" if new.disabled else None)
            await self._put_user(old, new, None if keep_sessions else reason)

    async def put_user(self, identity: UserIdentity, change: Callable[[User | None], User]) -> tuple[User, bool]:
        """Create a user, or replace the record as `change_user` does.

        `change` gets None if there is no such user. If it returns the record that it got, nothing ends. It may return
        another user name, and a repeated call completes a rename that was interrupted. Returns the user, and True if
        the user is new. Raises Taken for an id or a new name.
        """
        async with self._changing(identity.digest):
            old = await self._find_user(identity, finish_own=False)
            new = change(old)
            if old is not None and old.renamed_to:
                await self._pending_revocations.finish_rename(old)
                renamed, old = old, await self._registry.users.find(identity)
                if old is None and new.username == renamed.renamed_to:
                    old = await self._registry.users.find(new.identity)
                new = change(old)
            if old is None and new.id and (holder := await self._registry.ids.claim_one(new)):
                raise Taken("id", new.id, holder)
            known = old or await self._find_unlisted(identity)
            await self._put_user(old, new, find_user_narrowing(known, new) if known else None)
        return new, old is None

    async def delete_user(self, identity: UserIdentity, check: Callable[[User], object] = lambda _: None) -> None:
        """Delete the user. `check` gets the record, and may refuse by an exception."""
        async with self._changing(identity.digest):
            user = await self._get_user(identity)
            check(user)
            ending = UserEnding.of(identity, "user_deleted")
            await self._registry.add_pending_users([ending])
            await self._registry.users.delete(identity)
            record_change(user, None, **self._origin)
            await self._pending_revocations.run_revocation_of(ending)
            await self._registry.ids.release([user.id])

    @asynccontextmanager
    async def _changing(self, digest: str = "", *, scans: bool = False) -> AsyncIterator[None]:
        """Hold the lock during a change, then run pending revocations, even if the change is refused.

        These include the pending revocations of an earlier change that was interrupted. Raises StoreUnavailable if
        sessions of the user `digest` are left, but not for other users. Only a change of a client scans sessions,
        without the lock, so a change of a user waits for no scan.
        """
        try:
            async with self._registry.make_lock(self.on_wait, wait_seconds=self.wait_seconds) as lock:
                try:
                    yield
                finally:
                    left = await self._pending_revocations.run_user_revocations(lock)
                    if digest in {user.digest for user in left}:
                        raise StoreUnavailable("the user still has sessions; they will be revoked as soon as possible")
        finally:
            if scans:
                await self._pending_revocations.run_session_scans(self.on_wait)

    async def _get_user(self, identity: UserIdentity, *, or_unlisted: bool = False) -> User:
        """Return the user, also of a realm that no longer exists. Raises ChangeRefused if there is no such user.

        With `or_unlisted` a user of an external realm who has no record is returned as one with the default roles.
        """
        user = await self._find_user(identity)
        if user is not None:
            return user
        unlisted = await self._find_unlisted(identity)
        if unlisted is None or not or_unlisted:
            lists_nobody = f", which does not list {identity.username} (and need not)" if unlisted else ""
            raise ChangeRefused(f"user {identity.username} not found in realm {identity.realm}{lists_nobody}")
        return unlisted

    async def _find_user(self, identity: UserIdentity, *, finish_own: bool = True) -> User | None:
        """Return the user. Complete interrupted renames before: one to this name would undo what follows."""
        pending = await self._registry.list_pending_users()
        renamed = [each for each in pending if finish_own or each.digest != identity.digest]
        await self._pending_revocations.finish_renames(renamed)
        return await self._registry.users.find(identity)

    async def _find_unlisted(self, identity: UserIdentity) -> User | None:
        """Return a user with the default roles of the external realm, as if the user had no record there.

        Returns None for realm main. Raises ChangeRefused if there is no such realm.
        """
        if identity.realm == MAIN_REALM:
            return None
        provider = await self._registry.realms.find(identity.realm)
        if provider is None:
            raise ChangeRefused(f"realm {identity.realm} not found")
        return provider.make_unlisted_user(identity.realm, identity.username)

    async def _put_user(self, old: User | None, new: User, reason: EndReason | None) -> None:
        """Write and record the change of `old` to `new`. With a reason, all sessions of the user end.

        A new name is written as the beginning of a rename, which the revocations after the change complete.
        """
        written = new
        if old is not None and old.identity != new.identity:
            holder = await self._registry.users.find(new.identity)
            if holder is not None and holder.id != old.id:
                raise Taken("username", new.username, holder.username)
            reason = "user_renamed"
            written = msgspec.structs.replace(new, username=old.username, renamed_to=new.username)
        if reason is not None:
            await self._registry.add_pending_users([UserEnding.of(written.identity, reason)])
        await self._registry.users.replace(old, written, lambda: record_change(old, new, **self._origin))
