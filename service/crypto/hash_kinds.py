"""The kinds of password hashes that a user may bring: their exact forms, and the cost of a check by a fixed table.

The unit of cost is a check of the service's own argon2id hash, about 20 ms of a core. The table was measured on x86-64.
It is not measured at run time, so that the same file is accepted on each machine.

Clauses: RFC 6749 §10.10, RFC 6819 §5.1.4.1.3
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from math import ceil
from typing import Final, NamedTuple

from service.protocol.token_form import encode

MAX_COST: Final = 20
MAX_MEMORY_KIB: Final = 256 * 1024

# Base64 without padding, of at most 1022 bytes, because passlib reads no salt of more than 1024. The unused bits of the
# last character must be 0.
_BASE64: Final = r"(?:[A-Za-z0-9+/]{4}){2,340}(?:[A-Za-z0-9+/][AQgw]|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048])?"
_SHA256: Final = "[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]"
_PBKDF2_SALT, _PBKDF2_SHA256 = _BASE64.replace("+", "."), _SHA256.replace("+", ".")
_BCRYPT: Final = r"\$2[aby]\$(0[4-9]|[12][0-9]|3[01])\$[A-Za-z0-9./]{21}[.Oeu][A-Za-z0-9./]{30}[.CGKOSWaeimquy26]"
_NUMBER: Final = "([1-9][0-9]{0,8})"
_TO_16: Final = "([1-9]|1[0-6])"
_ARGON2: Final = rf"\$v=(?:16|19)\$m={_NUMBER},t={_TO_16},p={_TO_16}\$(?=[^$]{{11}}){_BASE64}\${_BASE64}"


class HashCost(NamedTuple):
    """The kind of a hash, the memory of a check in KiB, and its work in checks of the service's own hash."""

    kind: str
    memory_kib: int
    work: float


def _weigh_argon2(memory_kib: int, passes: int, lanes: int) -> tuple[int, float]:
    # Memory beyond 64 MiB is slower, because it is new for each check. With too little memory there is no check.
    factor = 2 if memory_kib > 64 * 1024 else 1
    return memory_kib, factor * memory_kib * passes / 38_912 if memory_kib >= 8 * lanes else 0


def _weigh_bcrypt(rounds: int) -> tuple[int, float]:
    return 4, 2**rounds / 370


def _weigh_sha256(iterations: int) -> tuple[int, float]:
    return 0, iterations / 85_000


def _weigh_sha512(iterations: int) -> tuple[int, float]:
    return 0, iterations / 38_000


def _weigh_scrypt(rounds: int, block_size: int, lanes: int) -> tuple[int, float]:
    # The passes of PBKDF2 before and after the rounds take as long as four rounds.
    return block_size * (2**rounds + lanes) // 8, (2**rounds + 4) * block_size * lanes / 57_344


# The names are those of passlib, except those of argon2, which are of the PHC form. SHA-1 costs as much as SHA-256.
_KINDS: Final[dict[str, tuple[str, Callable[..., tuple[int, float]]]]] = {
    "argon2id": (rf"\$argon2id{_ARGON2}", _weigh_argon2),
    "argon2i": (rf"\$argon2i{_ARGON2}", _weigh_argon2),
    "argon2d": (rf"\$argon2d{_ARGON2}", _weigh_argon2),
    "bcrypt": (_BCRYPT, _weigh_bcrypt),
    "pbkdf2_sha1": (rf"\$pbkdf2\${_NUMBER}\${_PBKDF2_SALT}\$[A-Za-z0-9./]{{26}}[AEIMQUYcgkosw048]", _weigh_sha256),
    "pbkdf2_sha256": (rf"\$pbkdf2-sha256\${_NUMBER}\${_PBKDF2_SALT}\${_PBKDF2_SHA256}", _weigh_sha256),
    "pbkdf2_sha512": (rf"\$pbkdf2-sha512\${_NUMBER}\${_PBKDF2_SALT}\$[A-Za-z0-9./]{{85}}[AQgw]", _weigh_sha512),
    "scrypt": (
        rf"\$scrypt\$ln=([1-9]|[12][0-9]),r=([2-9]|[1-9][0-9]{{1,5}}),p={_NUMBER}\${_BASE64}\${_SHA256}",
        _weigh_scrypt,
    ),
    "django_pbkdf2_sha256": (rf"pbkdf2_sha256\${_NUMBER}\$[A-Za-z0-9]{{8,64}}\${_SHA256}=", _weigh_sha256),
    "django_bcrypt_sha256": (rf"bcrypt_sha256\${_BCRYPT}", _weigh_bcrypt),
}

# Only these words of a hash are told, because the text may be a password by mistake.
_HEAD: Final = re.compile(
    r"\$?(?:argon2(?:id?|d)?|bcrypt(?:_sha256)?|2[abxy]?|pbkdf2(?:[-_]sha(?:1|256|512))?|(?:fb|gost-|y)?s?crypt|wp|apr1"
    r"|md5|sha1|[156HPSy])\$|\{(?:argon2|pbkdf2|s?crypt|bcrypt|noop|s?(?:md5|sha(?:-?[0-9]{3})?))\}",
    re.IGNORECASE,
)


def find_hash_cost(text: str) -> HashCost | None:
    """Return the cost of a check of this hash, or None if the hash is incomplete or of no known kind."""
    for kind, (form, weigh) in _KINDS.items():
        if (match := re.fullmatch(form, text)) is not None:
            return HashCost(kind, *weigh(*map(int, match.groups())))
    return None


def find_hash_mistake(text: str) -> str | None:
    """Return what is wrong with a password hash, or None.

    A truncated hash would otherwise be noticed only when its user logs in. With a hash that costs too much, a few
    logins would take all memory or time. A hash that is too cheap is accepted, because the first login replaces it.
    """
    cost = find_hash_cost(text)
    if cost is None:
        head = _HEAD.match(text)
        found = f"begins with {head[0]}, which is not accepted or not complete; " if head else ""
        return f"{found}expected a hash of argon2, bcrypt, PBKDF2 or scrypt, see docs/how-to/migrate-users.md"
    if not cost.work:
        return "has too little memory for its lanes; expected 8 KiB for each"
    if cost.memory_kib > MAX_MEMORY_KIB:
        return f"costs {ceil(cost.memory_kib / 1024)} MiB; expected at most {MAX_MEMORY_KIB // 1024}"
    if cost.work > MAX_COST:
        return f"costs {ceil(cost.work)} times as much as the service's own hash; expected at most {MAX_COST}"
    return None


def digest_hash(password_hash: str) -> str:
    """Return 22 characters of base64url that recognise a hash which was replaced.

    Nobody can try passwords against the digest without the salt, which has at least 47 random bits and is gone.
    """
    return encode(hashlib.sha256(password_hash.encode()).digest()[:16])
