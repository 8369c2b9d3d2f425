"""Passwords and client secrets: hashed with argon2id in bounded threads, compared in constant time.

A secret that the service made is 256 random bits and needs one SHA-256; what people choose needs a slow hash.
The slow ones run in pools of threads, clients and users apart, so that neither the event loop nor the other kind
waits; a full pool refuses at once instead of queueing without end. Callers from different networks take turns in the
queue, so that no address keeps the others out.

Clauses: RFC 6749 §2.3.1, §10.1, §10.10, RFC 6819 §5.1.4.1.3, §5.1.4.2.3
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode
from functools import lru_cache
from typing import Final

from argon2 import Type, extract_parameters
from passlib.context import CryptContext
from passlib.exc import PasswordSizeError, PasswordValueError
from passlib.hash import argon2

MAX_PASSWORD_CHARACTERS: Final = 1024
GENERATED_SECRET_PREFIX: Final = "sha256:"


# Salt and digest are base64 without padding, whose last character has no bits to spare.
_BASE64: Final = r"(?:[A-Za-z0-9+/]{4}){2,}(?:[A-Za-z0-9+/][AQgw]|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048])?"
_PHC_FORM: Final = re.compile(rf"(\$argon2(?:id|i|d)\$v=[0-9]+\$m=[0-9]+,t=[0-9]+,p=[0-9]+)\$({_BASE64})\$({_BASE64})")

# RFC 9106 leaves the choice to the machine: about 20 ms of one core here.
MEMORY_KIB: Final = 19 * 1024
PASSES: Final = 2
MAX_MEMORY_KIB: Final = 256 * 1024
MAX_PASSES: Final = 16
MAX_LANES: Final = 16

_argon2id: Final = CryptContext(
    schemes=["argon2"],
    argon2__type="ID",
    argon2__memory_cost=MEMORY_KIB,
    argon2__time_cost=PASSES,
    argon2__parallelism=1,
)


def hash_password(password: str) -> str:
    """An argon2id hash in PHC form; about 20 ms of one core and 19 MiB."""
    password_hash: str = _argon2id.hash(password)
    return password_hash


def is_password_hash(text: str) -> bool:
    """Whole in each part: one that was cut off would otherwise be found out only at its user's login.

    And not so costly that a few logins would take all memory or time.
    """
    match = _PHC_FORM.fullmatch(text)
    return match is not None and _has_acceptable_cost(f"{match[1]}${'A' * len(match[2])}${'A' * len(match[3])}")


@lru_cache(maxsize=64)
def _has_acceptable_cost(form: str) -> bool:
    """Judges a hash by its parameters and lengths, which the hashes of a large seed file have in common."""
    try:
        argon2.from_string(form)
    except ValueError:  # no pass, no lane, a salt that is too short
        return False
    found = extract_parameters(form)
    if not 8 * found.parallelism <= found.memory_cost <= MAX_MEMORY_KIB:
        return False
    return found.time_cost <= MAX_PASSES and found.parallelism <= MAX_LANES


def verify_password(password: str, password_hash: str) -> tuple[bool, str | None]:
    """Whether it is right, and a new hash where the stored one has weaker parameters than today's.

    What is too long to be right takes as long as any wrong one, or its length would tell whether the user exists.
    """
    if len(password) > MAX_PASSWORD_CHARACTERS:
        verify_dummy_password()
        return False, None
    try:
        if not _is_weaker(password_hash):
            return _argon2id.verify(password, password_hash), None
        right, new_hash = _argon2id.verify_and_update(password, password_hash)
    except (PasswordSizeError, PasswordValueError, UnicodeError):
        return False, None
    return right, new_hash


def _is_weaker(password_hash: str) -> bool:
    """The library would replace any hash of other parameters than today's, stronger ones included."""
    found = extract_parameters(password_hash)
    return found.type is not Type.ID or found.memory_cost < MEMORY_KIB or found.time_cost < PASSES


def verify_dummy_password() -> None:
    """Takes as long as a real check, so that time does not tell whether a user exists."""
    _argon2id.dummy_verify()


def hash_generated_secret(secret: str) -> str:
    """For a secret of 256 random bits: nobody guesses those, so a fast digest is enough."""
    digest = hashlib.sha256(secret.encode()).digest()
    return GENERATED_SECRET_PREFIX + urlsafe_b64encode(digest).decode().rstrip("=")


def is_secret_hash(text: str) -> bool:
    is_made = text.startswith(GENERATED_SECRET_PREFIX) and len(text) == len(GENERATED_SECRET_PREFIX) + 43
    return is_made or is_password_hash(text)
