"""The records that are made from the entries of a seed. A record may keep hashes of the old one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from service.crypto.hash_kinds import digest_hash
from service.crypto.keyring import Keyring
from service.crypto.password_hashing import hash_password, verify_password
from service.protocol.client import Client, is_short_secret
from service.protocol.provider import IdentityProvider
from service.protocol.user import User
from service.registry.record_changes import SECRET_FIELDS, Record
from service.registry.seed_file.entries import ClientEntry, RealmEntry, UserEntry

Same = TypeVar("Same", bound=Record)


def make_client(entry: ClientEntry, old: Client | None, secret_hash: str | None = None) -> Client:
    """Make the record of a client. `secret_hash` is the hash of a plain secret, if the caller uses it."""
    is_short = is_short_secret(entry.client_secret)
    if entry.client_secret is None:
        secret_hash = entry.client_secret_hash
        is_short = old is not None and old.client_secret_hash == secret_hash and old.has_short_secret
    client = msgspec.convert(msgspec.to_builtins(entry), Client)
    if old is not None and old.client_secret_hash == secret_hash:
        until_ms, previous_hash = old.previous_secret_until_ms, old.previous_secret_hash
        client = msgspec.structs.replace(client, previous_secret_hash=previous_hash, previous_secret_until_ms=until_ms)
    return msgspec.structs.replace(client, client_secret_hash=secret_hash, has_short_secret=is_short)


def make_user(entry: UserEntry, old: User | None, password_hash: str | None = None, new_id: str = "") -> User:
    """Make the record of a user. `password_hash` is the hash of a plain password, if the caller uses it.

    The id never changes. `new_id` is that of a user who had no record.

    A hash of the file that a login replaced by a stronger one stays replaced. The digest of the last import is kept,
    since without it a repeated import would restore the old password.
    """
    upgraded_from, imported_hash = None, old.imported_hash if old else None
    if entry.password is None:
        password_hash = entry.password_hash
        if old is not None and password_hash is not None:
            is_upgraded = digest_hash(password_hash) == old.upgraded_from
            if is_upgraded or password_hash == old.password_hash:
                password_hash, upgraded_from = old.password_hash, old.upgraded_from
    entry = msgspec.structs.replace(entry, roles=tuple(dict.fromkeys(entry.roles)))
    user = msgspec.convert({"realm": entry.realm} | msgspec.to_builtins(entry), User)
    return msgspec.structs.replace(
        user,
        id=old.id if old else new_id,
        password_hash=password_hash,
        upgraded_from=upgraded_from,
        imported_hash=imported_hash,
    )


def keep_or_hash(secret: str, old_hash: str | None) -> str:
    """Return the old hash if it is one of this secret, so that workers need not verify it again. Otherwise hash it."""
    if old_hash is not None and old_hash.startswith("$argon2") and verify_password(secret, old_hash)[0]:
        return old_hash
    return hash_password(secret)


async def keep_or_hash_all(secrets: Collection[tuple[str, str | None]], threads: ThreadPoolExecutor) -> list[str]:
    """Keep or hash many secrets, each with its old hash, in these threads."""
    loop = asyncio.get_running_loop()
    return await asyncio.gather(*(loop.run_in_executor(threads, keep_or_hash, *each) for each in secrets))


def make_provider(name: str, entry: RealmEntry, old: IdentityProvider | None, keyring: Keyring) -> IdentityProvider:
    """Make the record of a realm. An unchanged secret that was encrypted with the current key is not encrypted again.

    Each encryption of a secret gives another result, which would count as a change. An entry without a secret keeps
    the old one.
    """
    sealed, client_secret = old.sealed_secret if old else "", entry.client_secret
    if client_secret is None:
        client_secret = keyring.open_sealed_text(f"realm:{name}", sealed)
    if client_secret is not None and not keyring.is_sealed(f"realm:{name}", sealed, client_secret):
        sealed = keyring.seal(f"realm:{name}", client_secret.encode()) if client_secret else ""
    provider = msgspec.convert(msgspec.to_builtins(entry), IdentityProvider)
    return msgspec.structs.replace(provider, sealed_secret=sealed)


def merge_record(old: Same, made: Same, fields: Collection[str]) -> Same:
    """Return `old` with each field that the given fields of an entry set copied from `made`."""
    names = [name for name in old.__struct_fields__ if SECRET_FIELDS.get(name, name) in fields]
    return msgspec.structs.replace(old, **{name: getattr(made, name) for name in names})
