"""The records that are made from the entries of a seed. A record may keep hashes of the old one."""

from __future__ import annotations

import msgspec

from service.crypto.keyring import Keyring
from service.crypto.password_hashing import hash_password, verify_password
from service.protocol.client import Client, is_short_secret
from service.protocol.provider import IdentityProvider
from service.protocol.user import User
from service.registry.seed_file.schema import ClientEntry, RealmEntry, UserEntry


def make_client(entry: ClientEntry, old: Client | None, *, with_secret: bool = True) -> Client:
    """Make the record of a client. A secret that the old record has already keeps its hash.

    So workers need not verify it again. Without `with_secret` the record gets no secret, because the caller uses the
    other fields only.
    """
    client = msgspec.convert(msgspec.to_builtins(entry), Client)
    if not with_secret:
        return client
    secret_hash, is_short = entry.client_secret_hash, is_short_secret(entry.client_secret)
    if entry.client_secret is not None:
        secret_hash = _keep_or_hash(entry.client_secret, old.client_secret_hash if old else None)
    elif old is not None and old.client_secret_hash == secret_hash:
        is_short = old.has_short_secret
    return msgspec.structs.replace(client, client_secret_hash=secret_hash, has_short_secret=is_short)


def make_user(entry: UserEntry, old: User | None, *, with_password: bool = True) -> User:
    """Make the record of a user. A password that the old record has already keeps its hash.

    Without `with_password` the record gets no password, because the caller uses the other fields only.
    """
    user = msgspec.convert({"realm": entry.realm} | msgspec.to_builtins(entry), User)
    password_hash, upgraded_from = entry.password_hash, None
    if not with_password:
        password_hash = None
    elif entry.password is not None:
        password_hash = _keep_or_hash(entry.password, old.password_hash if old else None)
    elif old is not None and old.upgraded_from == entry.password_hash:
        password_hash, upgraded_from = old.password_hash, old.upgraded_from
    return msgspec.structs.replace(user, password_hash=password_hash, upgraded_from=upgraded_from)


def _keep_or_hash(secret: str, old_hash: str | None) -> str:
    if old_hash is not None and old_hash.startswith("$argon2") and verify_password(secret, old_hash)[0]:
        return old_hash
    return hash_password(secret)


def make_provider(name: str, entry: RealmEntry, old: IdentityProvider | None, keyring: Keyring) -> IdentityProvider:
    """Make the record of a realm. An unchanged secret that was encrypted with the current key is not encrypted again.

    Each encryption of a secret gives another result, which would count as a change.
    """
    sealed = old.sealed_secret if old else ""
    if not keyring.is_sealed(sealed, entry.client_secret, f"realm:{name}"):
        sealed = keyring.encrypt(entry.client_secret, f"realm:{name}") if entry.client_secret else ""
    provider = msgspec.convert(msgspec.to_builtins(entry), IdentityProvider)
    return msgspec.structs.replace(provider, sealed_secret=sealed)
