"""Changes of single clients and users, as the console makes them, each with all that it ends.

They are made under the registry's lock, so none is lost to a seed that is being applied. What a seed file says is not
applied again until its entry changes there, so nothing that is changed here comes back with the next start.

Clauses: SPEC §2.3, §3, §6
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Unpack

import msgspec

from service.observability.audit import Event, Fields, record_event
from service.protocol.client import Client
from service.protocol.scope import MAIN_REALM
from service.protocol.user import User, UserIdentity
from service.registry.pending_revocations import PendingRevocations
from service.registry.records import is_narrowed, list_origins
from service.store.registry import RegistryStore


class ChangeRefused(Exception):
    """The message says why, in a sentence; nothing was changed."""


class RegistryEditor:
    """When one of these returns, what it ends has ended, on every worker. `on_wait`: a seed is being applied first.

    `actor` is who the security events say did it.
    """

    def __init__(
        self,
        registry: RegistryStore,
        pending_revocations: PendingRevocations,
        actor: str,
        on_wait: Callable[[], object] = lambda: None,
    ) -> None:
        self._registry = registry
        self._pending_revocations = pending_revocations
        self._actor = actor
        self._on_wait = on_wait

    async def create_client(self, client: Client) -> None:
        async with self._changing("client_created", client_id=client.client_id):
            if await self._registry.find_client(client.client_id) is not None:
                raise ChangeRefused(f"there is a client {client.client_id} already")
            await self._put_client(client)

    async def rotate_secret(self, client_id: str, secret_hash: str, previous_until_ms: int) -> None:
        """The secret of until now stays good until that time by Redis's clock; 0: no longer."""
        async with self._changing("client_secret_rotated", client_id=client_id):
            client = await self._get_client(client_id)
            if client.is_public:
                raise ChangeRefused(f"the client {client_id} is public: it has no secret")
            await self._put_client(
                msgspec.structs.replace(
                    client,
                    client_secret_hash=secret_hash,
                    has_short_secret=False,
                    previous_secret_hash=client.client_secret_hash if previous_until_ms else None,
                    previous_secret_until_ms=previous_until_ms,
                ),
            )

    async def delete_client(self, client_id: str) -> None:
        """No new tokens from now on, and when this returns its sessions have ended."""
        async with self._changing("client_deleted", client_id=client_id):
            client = await self._get_client(client_id)
            await self._registry.delete_client(client, origins=list_origins(client.redirect_uris))

    async def create_user(self, user: User) -> None:
        """In a realm of an organisation this lists somebody who had its default roles until now."""
        async with self._changing("user_created", username=user.username, realm=user.realm):
            if await self._registry.find_user(user.identity) is not None:
                raise ChangeRefused(f"there is a user {user.username} in realm {user.realm} already")
            unlisted = await self._find_unlisted(user.identity)
            await self._put_user(user, ends_sessions=unlisted is not None and is_narrowed(unlisted, user))

    async def set_password(self, identity: UserIdentity, password_hash: str, *, keep_sessions: bool) -> None:
        if identity.realm != MAIN_REALM:
            raise ChangeRefused(f"the realm {identity.realm} checks passwords itself")
        async with self._changing("user_password_set", username=identity.username, realm=identity.realm):
            user = await self._get_user(identity)
            changed = msgspec.structs.replace(user, password_hash=password_hash, upgraded_from=None)
            await self._put_user(changed, ends_sessions=not keep_sessions)

    async def disable_user(self, identity: UserIdentity) -> None:
        """Somebody whom an organisation's realm does not list is listed by this, so that it can be known of them."""
        async with self._changing("user_disabled", username=identity.username, realm=identity.realm):
            user = await self._get_user(identity, or_unlisted=True)
            await self._put_user(msgspec.structs.replace(user, disabled=True), ends_sessions=True)

    async def enable_user(self, identity: UserIdentity) -> None:
        async with self._changing("user_enabled", username=identity.username, realm=identity.realm):
            user = await self._get_user(identity)
            await self._put_user(msgspec.structs.replace(user, disabled=False), ends_sessions=False)

    async def delete_user(self, identity: UserIdentity) -> None:
        async with self._changing("user_deleted", username=identity.username, realm=identity.realm):
            await self._get_user(identity)
            await self._registry.add_pending_users([identity])
            await self._registry.delete_users([identity])

    @asynccontextmanager
    async def _changing(self, event: Event, **fields: Unpack[Fields]) -> AsyncIterator[None]:
        """Settles what it ends, and what an earlier change was cut short before, even where this one is refused.

        The event is told as soon as the record has changed: nobody hides a change by cutting short what follows.
        """
        async with self._registry.make_lock(self._on_wait) as lock:
            try:
                yield
                fields["actor"] = self._actor
                record_event(event, **fields)
            finally:
                await self._pending_revocations.settle(lock)

    async def _get_client(self, client_id: str) -> Client:
        client = await self._registry.find_client(client_id)
        if client is None:
            raise ChangeRefused(f"there is no client {client_id}")
        return client

    async def _put_client(self, client: Client) -> None:
        """The console changes no redirect URIs, grants or scopes of a client that exists."""
        origins = list_origins(client.redirect_uris)
        await self._registry.put_client(client, old_origins=origins, new_origins=origins, narrowing=None)

    async def _get_user(self, identity: UserIdentity, *, or_unlisted: bool = False) -> User:
        """Also of a realm that is gone, whose users may be listed still."""
        user = await self._registry.find_user(identity)
        if user is not None:
            return user
        unlisted = await self._find_unlisted(identity)
        if unlisted is None or not or_unlisted:
            lists_nobody = f", which does not list {identity.username} (and need not)" if unlisted else ""
            raise ChangeRefused(f"there is no user {identity.username} in realm {identity.realm}{lists_nobody}")
        return unlisted

    async def _find_unlisted(self, identity: UserIdentity) -> User | None:
        """As somebody counts whom the realm of an organisation does not list; raises ChangeRefused for no realm."""
        if identity.realm == MAIN_REALM:
            return None
        provider = await self._registry.find_realm(identity.realm)
        if provider is None:
            raise ChangeRefused(f"there is no realm {identity.realm}")
        return provider.make_unlisted_user(identity.realm, identity.username)

    async def _put_user(self, user: User, *, ends_sessions: bool) -> None:
        if ends_sessions:
            await self._registry.add_pending_users([user.identity])
        await self._registry.put_users([user])
