"""The change of a password by its user, with the end of the user's sessions.

It is made as a change at the console is: under the registry's lock, and with a pending revocation that is recorded
before the change. If the process is interrupted, the next holder of the lock ends the sessions.

Clauses: RFC 6819 §5.1.4.1.3, SPEC §3
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from service.observability.audit import name_user, record_event
from service.protocol.errors import TemporarilyUnavailable
from service.protocol.user import Login
from service.redis_client.lock import LockHeld
from service.registry.pending_revocations import PendingRevocations
from service.store.registry.store import RegistryStore
from service.store.sessions.families import UserEnding

LOCK_WAIT_SECONDS: Final = 1.5


@dataclass(slots=True)
class PasswordChange:
    """The change of a password. It waits up to `lock_wait_seconds` for another change of the registry."""

    _registry: RegistryStore
    _pending_revocations: PendingRevocations
    lock_wait_seconds: float = LOCK_WAIT_SECONDS

    async def make(self, login: Login, password_hash: str, *, address: str) -> Login | None:
        """Store the new password and end all sessions of the user, on every worker.

        `login` checked the old password. `address` is the caller's, for the security event. Returns a login with the
        new record, which began after all sessions had ended. Returns None if since the given login began the record has
        changed, or everything of the user was revoked. Raises TemporarilyUnavailable if the lock is not free in time,
        for example because a seed is being applied.
        """
        checked, identity = login.user, login.user.identity
        try:
            async with self._registry.make_lock(wait_seconds=self.lock_wait_seconds):
                # This read comes before the pending revocation, so that a change which loses the race ends no sessions.
                present = await self._registry.users.find(identity)
                if present is None or present.revision != checked.revision:
                    return None
                ending = UserEnding.of(identity, "password_set")
                await self._registry.add_pending_users([ending])
                new = msgspec.structs.replace(checked, password_hash=password_hash, upgraded_from=None)
                changed = await self._registry.users.put_password(new, login.begun_ms)
                if changed is None:
                    return None
                # Recorded now, so that an interruption of the revocation cannot hide the change.
                record_event("password_changed", **name_user(checked), address=address)
                return Login(changed, await self._pending_revocations.run_revocation_of(ending) + 1)
        except LockHeld:
            raise TemporarilyUnavailable("registry_locked", retry_after_seconds=1) from None
