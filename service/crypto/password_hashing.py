"""Hashing of passwords and client secrets with argon2id, and comparison in constant time.

A generated secret is 256 random bits and needs one SHA-256. A secret that a person chose needs a slow hash. Slow hashes
run in the threads of `hashing_pool`, so that they do not block the event loop.

A password is hashed in the Unicode form NFC. A hash that another program made of another form fits the password as it
was typed. Hashes of the other kinds in `hash_kinds.py` are checked by passlib, and never made.

Clauses: RFC 6749 §2.3.1, §10.1, §10.10, RFC 6819 §5.1.4.1.3, §5.1.4.2.3
"""

from __future__ import annotations

import unicodedata
from typing import Final

from argon2 import Type, extract_parameters
from passlib.context import CryptContext
from passlib.exc import PasswordSizeError, PasswordValueError
from passlib.registry import get_crypt_handler

from service.crypto.hash_kinds import find_hash_kind, find_hash_mistake
from service.crypto.keyring import GENERATED_SECRET_PREFIX
from service.protocol.user import MAX_PASSWORD_CHARACTERS

# RFC 9106 lets the cost depend on the machine. These parameters take about 20 ms of one core.
MEMORY_KIB: Final = 19 * 1024
PASSES: Final = 2

_argon2id: Final = CryptContext(
    schemes=["argon2"],
    argon2__type="ID",
    argon2__memory_cost=MEMORY_KIB,
    argon2__time_cost=PASSES,
    argon2__parallelism=1,
)


def hash_password(password: str) -> str:
    """Return an argon2id hash in PHC form. This takes about 20 ms of one core and 19 MiB."""
    return str(_argon2id.hash(normalize_password(password)))


def normalize_password(password: str) -> str:
    return unicodedata.normalize("NFC", password)


def verify_password(password: str, password_hash: str) -> tuple[bool, str | None]:
    """Return True if the password is right, and a new hash if the stored one must be replaced, else None.

    A hash is replaced if it is weaker than today's, of another kind, or fits the password only as it was typed. A
    password that is too long takes as long as any wrong one. Otherwise its time would reveal whether the user exists.
    """
    if len(password) > MAX_PASSWORD_CHARACTERS:
        verify_dummy_password(password)
        return False, None
    normal = normalize_password(password)
    right, new_hash = _verify(normal, password_hash)
    # Both forms are always checked, so that the time tells nothing about a user who may not log in.
    if normal == password or not _verify(password, password_hash)[0] or right:
        return right, new_hash
    return True, hash_password(normal)


def _verify(password: str, password_hash: str) -> tuple[bool, str | None]:
    try:
        if not password_hash.startswith("$argon2"):
            return (True, hash_password(password)) if _verify_foreign(password, password_hash) else (False, None)
        if not _is_weaker(password_hash):
            return _argon2id.verify(password, password_hash), None
        right, new_hash = _argon2id.verify_and_update(password, password_hash)
    except (PasswordSizeError, PasswordValueError, UnicodeError):
        return False, None
    return right, new_hash


def _verify_foreign(password: str, password_hash: str) -> bool:
    """Return True if the password fits a hash that is not argon2. Raises what passlib raises for odd passwords."""
    kind, secret = find_hash_kind(password_hash), password.encode()
    if kind is None:
        return False
    handler = get_crypt_handler(kind)
    if "bcrypt" in kind:
        handler.set_backend()  # a check that loads it by itself fails if another thread loads it at the same time
    # bcrypt reads 72 bytes, and its library raises an error for more.
    return bool(handler.verify(secret[:72] if kind == "bcrypt" else secret, password_hash))


def _is_weaker(password_hash: str) -> bool:
    """Return True if the hash is weaker than today's. The library alone would also replace stronger hashes."""
    found = extract_parameters(password_hash)
    return found.type is not Type.ID or found.memory_cost < MEMORY_KIB or found.time_cost < PASSES


def verify_dummy_password(password: str = "") -> None:
    """Take as long as a real check of the password, so that the time does not reveal whether a user exists."""
    _argon2id.dummy_verify()
    if len(password) <= MAX_PASSWORD_CHARACTERS and normalize_password(password) != password:
        _argon2id.dummy_verify()


def is_secret_hash(text: str) -> bool:
    is_made = text.startswith(GENERATED_SECRET_PREFIX) and len(text) == len(GENERATED_SECRET_PREFIX) + 43
    return is_made or (text.startswith("$argon2") and find_hash_mistake(text) is None)
