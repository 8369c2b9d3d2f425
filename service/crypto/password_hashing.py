"""Hashing of passwords and client secrets with argon2id, and comparison in constant time.

A generated secret is 256 random bits and needs one SHA-256. A secret that a person chose needs a slow hash. Slow hashes
run in the threads of `hashing_pool`, so that they do not block the event loop.

A password is hashed in the Unicode form NFC. A foreign hash, of the other kinds in `hash_kinds.py` or of a higher cost,
is checked by passlib against the password as it was typed, and never made.

Clauses: RFC 6749 §2.3.1, §10.1, §10.10, RFC 6819 §5.1.4.1.3, §5.1.4.2.3
"""

from __future__ import annotations

import unicodedata
from typing import Final

from argon2 import Type, extract_parameters
from passlib.context import CryptContext
from passlib.exc import PasswordSizeError, PasswordValueError
from passlib.registry import get_crypt_handler

from service.crypto.hash_kinds import find_hash_cost, find_hash_mistake
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


def is_foreign(password_hash: str) -> bool:
    """Return True if a check costs more than one of the service's own hash, or the hash is of another kind."""
    cost = find_hash_cost(password_hash)
    return cost is None or cost.kind != "argon2id" or cost.memory_kib > MEMORY_KIB or cost.work > 1


def verify_password(password: str, password_hash: str) -> tuple[bool, str | None]:
    """Return True if the password is right, and a new hash if the stored one must be replaced, else None.

    A hash is replaced if it is weaker than today's, of another kind, or fits the password only as it was typed. A
    password that is too long takes as long as any wrong one. Otherwise its time would reveal whether the user exists.
    """
    if len(password) > MAX_PASSWORD_CHARACTERS:
        verify_dummy_password(password)
        return False, None
    normal = normalize_password(password)
    # Another program may have made a cheap argon2id hash of another form, so both forms are checked. Both are always
    # checked, so that the time tells nothing about a user who may not log in.
    forms = [password] if is_foreign(password_hash) else list(dict.fromkeys((normal, password)))
    fits = [_fits(form, password_hash) for form in forms]
    if not any(fits):
        return False, None
    fits_normal = fits[0] and forms[0] == normal
    is_kept = fits_normal and password_hash.startswith("$argon2") and not _is_weaker(password_hash)
    return True, None if is_kept else hash_password(password)


def _fits(password: str, password_hash: str) -> bool:
    verify = _argon2id.verify if password_hash.startswith("$argon2") else _verify_foreign
    try:
        return bool(verify(password, password_hash))
    except (PasswordSizeError, PasswordValueError, UnicodeError):
        return False


def _verify_foreign(password: str, password_hash: str) -> bool:
    """Return True if the password fits a hash that is not argon2. Raises what passlib raises for odd passwords."""
    cost, secret = find_hash_cost(password_hash), password.encode()
    if cost is None:
        return False
    handler = get_crypt_handler(cost.kind)
    if "bcrypt" in cost.kind:
        handler.set_backend()  # a check that loads it by itself fails if another thread loads it at the same time
    # bcrypt reads 72 bytes, and its library raises an error for more.
    return bool(handler.verify(secret[:72] if cost.kind == "bcrypt" else secret, password_hash))


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
