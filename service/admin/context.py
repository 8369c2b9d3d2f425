"""The objects that commands work with, on the store that the settings of the environment name."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.admin.output import CommandRefused
from service.components import Components
from service.config.settings import Settings, load_settings, make_redis_url
from service.observability.audit import name_user, record_event, use_audit_stream
from service.protocol.scope import MAIN_REALM
from service.protocol.user import User, UserIdentity, identify_user, normalize_claim
from service.registry.editor import RegistryEditor
from service.store.records import FamilyRecord


class AdminContext(Components):
    """All objects that commands work with.

    `on_wait` is called if a change waits for another one.
    """

    def __init__(self, settings: Settings, clock_offset_ms: Callable[[], int] = int) -> None:
        super().__init__(settings, clock_offset_ms)
        self.actor = get_actor()
        self.on_wait: Callable[[], object] = lambda: None
        origin = {"actor": self.actor, "reason": "cli"}
        self.editor = RegistryEditor(self.registry, self.pending_revocations, origin, lambda: self.on_wait())

    async def __aenter__(self) -> AdminContext:
        """Start to send security events to the stream."""
        use_audit_stream(self.audit_stream)
        self.audit_stream.start()
        return self

    async def check_realm(self, realm: str) -> None:
        if realm != MAIN_REALM and await self.registry.realms.find(realm) is None:
            raise CommandRefused(f"realm {realm} not found")

    async def identify_user(self, realm: str, username: str) -> UserIdentity:
        """Return the identity of a user name as typed, by the rule of the realm."""
        provider = None if realm == MAIN_REALM else await self.registry.realms.find(realm)
        name = normalize_claim(username, provider.username_claim) if provider else username
        return identify_user(realm, name)

    async def get_known_user(self, realm: str, username: str) -> User:
        """Return a user who may have sessions. Users of an identity provider need no record.

        Raises CommandRefused if there is no such realm, or no such user in realm main.
        """
        await self.check_realm(realm)
        identity = await self.identify_user(realm, username)
        user = await self.registry.users.find(identity)
        if realm == MAIN_REALM and user is None:
            raise CommandRefused(f"user {username} not found in realm {realm}")
        return user or User(realm=realm, username=identity.username)

    async def end_session(self, shard: str, digest: str, family: FamilyRecord) -> bool:
        """End a session and record it. Returns False if it has already ended."""
        ended = await self.families.end(shard, digest, client_id=family.client_id, reason="cli")
        if ended is not None:
            self.record("token_revoked_by_cli", client_id=family.client_id, **name_user(family), session=digest)
        return ended is not None

    def record(self, event: str, **fields: Any) -> None:
        """Record a security event about an act at this console."""
        fields["actor"] = self.actor
        record_event(event, **fields)

    async def __aexit__(self, *_: object) -> None:
        """Write the pending events and disconnect. Events that cannot be written are logged, and nothing is raised."""
        await self.audit_stream.close()
        await self.redis.close()


def open_context() -> AdminContext:
    """Return a context for the settings of the environment.

    Raises BadSettings, or CommandRefused if no store can be running.
    """
    settings = load_settings(os.environ)
    store = make_redis_url(settings)
    if not settings.secret_keys or (store.path is not None and not Path(store.path).exists()):
        raise CommandRefused(
            f"no embedded store is running in {store.path or settings.data_dir}: start the service, or set REDIS_URL"
        )
    return AdminContext(settings)


def get_actor() -> str:
    """Return the name of the user at the console, by the user id of the process and not by the environment."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user id without a name
        return f"user id {os.getuid()}"
