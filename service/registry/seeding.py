"""A seed applied to Redis: what is new is added, what changed in the file is updated, the rest is left alone.

Redis remembers a keyed digest of each entry as last applied. An entry whose text did not change since is not touched,
so that nothing which was changed elsewhere (a disabled user, a deleted client, a rotated secret) comes back at a
restart. One worker applies while the others wait. Whose sessions lost their ground is noted before or with the record,
and settled by whoever applies a seed then or next; an entry's digest is replaced in two steps around its record: what
is interrupted anywhere is done again by the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from service.credentials import Keyring
from service.hashing import hash_password, verify_password
from service.protocol.client import Client, find_loss
from service.protocol.organisation import Organisation
from service.protocol.user import User, identify_user
from service.registry.consequences import Consequences
from service.registry.seed import ClientEntry, RealmEntry, Seed, UserEntry
from service.registry.seed_events import SeedEvents
from service.store.connection import StoreLock
from service.store.registry import RegistryStore

_USERS_PER_BATCH: Final = 500
_UNDER_WAY: Final = "under way"
"""Stands for the digest of what is being written: if that breaks off, any file writes it again, the old one too."""

Item = TypeVar("Item")


class Seeding:
    """Applies seeds; `apply` returns how many entries were added or updated."""

    def __init__(
        self, registry: RegistryStore, keyring: Keyring, consequences: Consequences, hashing_threads: int
    ) -> None:
        self._registry = registry
        self._keyring = keyring
        self._consequences = consequences
        self._hashing_threads = hashing_threads

    async def apply(self, seed: Seed, *, actor: str = "service") -> int:
        """Waits for whoever applies a seed already; then mostly nothing is left to do."""
        async with self._registry.make_lock() as lock:
            events = SeedEvents(actor)
            digest = await self._registry.find_seed("file")
            applied = 0
            if digest != self._keyring.digest_seed(seed.text):
                await self._registry.put_seed("file", _UNDER_WAY)
                try:
                    applied = await self._apply_entries(seed, lock, events)
                finally:
                    events.tell_all()
            await self._consequences.settle(lock)
            await lock.renew()
            await self._registry.put_seed("file", self._keyring.digest_seed(seed.text))
        return applied

    async def _apply_entries(self, seed: Seed, lock: StoreLock, events: SeedEvents) -> int:
        applied = 0
        for name, realm_entry in seed.realms.items():
            applied += await self._apply_realm(name, realm_entry, events)
        for client_entry in seed.clients:
            applied += await self._apply_client(client_entry, events)
            await lock.renew()
        with ThreadPoolExecutor(self._hashing_threads, thread_name_prefix="seed") as threads:
            for entries in _batches(seed.users, _USERS_PER_BATCH):
                applied += await self._apply_users(entries, threads, lock, events)
        return applied

    async def _apply_realm(self, name: str, entry: RealmEntry, events: SeedEvents) -> int:
        """Realms are changed by the seed only, so a new key simply writes them anew, encrypted under it."""
        text = msgspec.json.encode(entry)
        known = await self._registry.find_seed(f"realm:{name}")
        if known == self._keyring.digest_seed(text):
            return 0
        old, new = await self._registry.find_realm(name), self._make_organisation(name, entry)
        await self._registry.put_seed(f"realm:{name}", _UNDER_WAY)
        if old is not None and not set(old.default_roles) <= set(new.default_roles):
            await self._registry.note_owed_realm_sweep(name)
        await self._registry.put_realm(name, new)
        events.note("realm", "add" if old is None else "update", name)
        await self._registry.put_seed(f"realm:{name}", self._keyring.digest_seed(text))
        return 1

    def _make_organisation(self, name: str, entry: RealmEntry) -> Organisation:
        fields = {field: getattr(entry, field) for field in Organisation.__struct_fields__ if field != "sealed_secret"}
        sealed = self._keyring.encrypt(entry.client_secret, f"realm:{name}") if entry.client_secret else ""
        return Organisation(sealed_secret=sealed, **fields)

    async def _apply_client(self, entry: ClientEntry, events: SeedEvents) -> int:
        text = msgspec.json.encode(entry)
        name = f"client:{entry.client_id}"
        known = await self._registry.find_seed(name)
        if known == self._keyring.digest_seed(text):
            return 0
        is_changed = known is None or not self._keyring.recognises_seed(known, text)
        if is_changed:
            await self._registry.put_seed(name, _UNDER_WAY)
            await self._write_client(entry, events)
        await self._registry.put_seed(name, self._keyring.digest_seed(text))
        return int(is_changed)

    async def _write_client(self, entry: ClientEntry, events: SeedEvents) -> None:
        old = await self._registry.find_client(entry.client_id)
        client = await asyncio.to_thread(_make_client, entry, old)
        old_origins = find_origins(old.redirect_uris) if old else ()
        loss = None if old is None else find_loss(old, client)
        await self._registry.put_client(
            client, old_origins=old_origins, new_origins=find_origins(client.redirect_uris), loss=loss
        )
        events.note("client", "add" if old is None else "update", entry.client_id)

    async def _apply_users(
        self, entries: Sequence[UserEntry], threads: ThreadPoolExecutor, lock: StoreLock, events: SeedEvents
    ) -> int:
        identities = [identify_user(entry.realm, entry.username) for entry in entries]
        texts = [msgspec.json.encode(entry) for entry in entries]
        digests = [self._keyring.digest_seed(text) for text in texts]
        known = await self._registry.find_user_seeds(identities)
        stale = [index for index, digest in enumerate(digests) if known[index] != digest]
        changed = [index for index in stale if not self._recognises(known[index], texts[index])]
        await self._registry.put_user_seeds([(identities[index], _UNDER_WAY) for index in changed])
        await self._write_users([entries[index] for index in changed], threads, lock, events)
        await self._registry.put_user_seeds([(identities[index], digests[index]) for index in stale])
        return len(changed)

    def _recognises(self, digest: str | None, text: bytes) -> bool:
        return digest is not None and self._keyring.recognises_seed(digest, text)

    async def _write_users(
        self, entries: Sequence[UserEntry], threads: ThreadPoolExecutor, lock: StoreLock, events: SeedEvents
    ) -> None:
        identities = [identify_user(entry.realm, entry.username) for entry in entries]
        olds = await self._registry.find_users(identities)
        loop = asyncio.get_running_loop()
        users: list[User] = []
        for batch in _batches(zip(entries, olds, strict=True), 8 * self._hashing_threads):
            made = (loop.run_in_executor(threads, _make_user, entry, old) for entry, old in batch)
            users += await asyncio.gather(*made)
            await lock.renew()
        befores = await self._find_befores(users, olds)
        pairs = zip(befores, users, strict=True)
        owing = [user.identity for before, user in pairs if before is not None and _loses(before, user)]
        await self._registry.note_owed_revocations(owing)
        await self._registry.put_users(users)
        for user, old in zip(users, olds, strict=True):
            events.note("user", "add" if old is None else "update", user.username, user.realm)
        await self._consequences.settle_revocations(lock)

    async def _find_befores(self, users: Sequence[User], olds: Sequence[User | None]) -> list[User | None]:
        """What each was until now: whom an external realm did not list had its default roles all the same."""
        realms = {user.realm for user, old in zip(users, olds, strict=True) if old is None}
        organisations = {realm: await self._registry.find_realm(realm) for realm in realms}
        befores = list(olds)
        for index, user in enumerate(users):
            organisation = organisations.get(user.realm)
            if olds[index] is None and organisation is not None:
                befores[index] = organisation.make_unlisted_user(user.realm, user.username)
        return befores


def find_origins(redirect_uris: Iterable[str]) -> tuple[str, ...]:
    """The web origins of redirect URIs, as a browser would send them; a private-use scheme has none.

    Clauses: RFC 6454 §6.2
    """
    origins = set()
    for redirect_uri in redirect_uris:
        parts = urlsplit(redirect_uri)
        if parts.scheme in ("http", "https"):
            default_port = {"http": 80, "https": 443}[parts.scheme]
            host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
            port = "" if parts.port in (None, default_port) else f":{parts.port}"
            origins.add(f"{parts.scheme}://{host}{port}")
    return tuple(sorted(origins))


def _make_client(entry: ClientEntry, old: Client | None) -> Client:
    """A secret that is the old one keeps its hash, so that workers need not check it anew."""
    secret_hash = entry.client_secret_hash
    if entry.client_secret is not None:
        secret_hash = _keep_or_hash(entry.client_secret, old.client_secret_hash if old else None)
    return Client(
        client_id=entry.client_id,
        client_secret_hash=secret_hash,
        client_name=entry.client_name,
        redirect_uris=entry.redirect_uris,
        grant_types=entry.grant_types,
        scope=entry.scope,
        default_scope=entry.default_scope,
        require_pkce=entry.require_pkce,
        introspect=entry.introspect,
    )


def _make_user(entry: UserEntry, old: User | None) -> User:
    password_hash, upgraded_from = entry.password_hash, None
    if entry.password is not None:
        password_hash = _keep_or_hash(entry.password, old.password_hash if old else None)
    elif old is not None and old.upgraded_from == entry.password_hash:
        password_hash, upgraded_from = old.password_hash, old.upgraded_from
    return User(
        realm=entry.realm,
        username=entry.username,
        password_hash=password_hash,
        upgraded_from=upgraded_from,
        roles=entry.roles,
        name=entry.name,
    )


def _keep_or_hash(secret: str, old_hash: str | None) -> str:
    if old_hash is not None and old_hash.startswith("$argon2") and verify_password(secret, old_hash)[0]:
        return old_hash
    return hash_password(secret)


def _loses(old: User, new: User) -> bool:
    """Whether sessions of the old record rest on something that the new one lacks: its password or a role."""
    return new.disabled or old.password_hash != new.password_hash or not set(old.roles) <= set(new.roles)


def _batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
