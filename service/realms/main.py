"""Realm main: the users whose passwords this service stores.

Clauses: RFC 6749 §4.3.2, §10.10, SPEC §2.2
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from service.crypto.hash_kinds import digest_hash
from service.crypto.hashing_pool import HashingPool
from service.crypto.password_hashing import verify_dummy_password
from service.protocol.errors import InvalidGrant
from service.protocol.scope import MAIN_REALM
from service.protocol.user import Login, User, identify_user
from service.redis_client.deadline import StoreUnavailable
from service.registry.cache import UserCache
from service.store.registry.store import RegistryStore


@dataclass(frozen=True, slots=True)
class MainRealm:
    _registry: RegistryStore
    _users: UserCache
    _passwords: HashingPool

    async def log_in(self, username: str, password: str, network: str, begun_ms: int) -> Login:
        """Return the login if the password is right. Raises InvalidGrant if the login is refused.

        An unknown name is refused with the same response and after the same time as a wrong password. The record is
        therefore read from Redis and not from this worker's cache, which holds existing users only.
        """
        user = await self._registry.users.find(identify_user(MAIN_REALM, username))
        if user is None or user.password_hash is None:
            await self._passwords.run(verify_dummy_password, password, network=network)
            raise InvalidGrant("user_unknown")
        right, new_hash = await self._passwords.verify(password, user.password_hash, network)
        if not right:
            raise InvalidGrant("password_wrong", user=user)
        if user.disabled or user.renamed_to:
            raise InvalidGrant("user_disabled", user=user)
        if new_hash is not None:
            with suppress(StoreUnavailable):
                upgraded_from = user.upgraded_from or digest_hash(user.password_hash)
                await self._registry.users.replace_password_hash(user, new_hash, upgraded_from)
        return Login(user, begun_ms)

    async def find_registered(self, username: str) -> User | None:
        """Return the user, even a disabled one. An unknown name costs as much as a known one."""
        return await self._registry.users.find(identify_user(MAIN_REALM, username))

    async def find_user(self, username: str) -> User | None:
        """Return the user, or None if they do not exist or are disabled."""
        user = await self._users.find(identify_user(MAIN_REALM, username))
        return None if user is None or user.disabled or user.renamed_to else user
