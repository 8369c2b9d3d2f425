"""Resource owners: a realm and a user name, and the stable identifiers derived from them.

Clauses: SPEC §2.2, §4.2 (a user of one realm is not the user of the same name in another)
"""

from __future__ import annotations

import hashlib
import unicodedata
from base64 import urlsafe_b64encode
from typing import Final

import msgspec

from .scope import MAIN_REALM

MAX_USERNAME_CHARACTERS: Final = 255
MIN_PASSWORD_CHARACTERS: Final = 8
"""The minimum length of a new password, unless the operator configures another one."""

MAX_PASSWORD_CHARACTERS: Final = 1024

EMAIL_CLAIM: Final = "email"

_ASCII_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


class UserIdentity(msgspec.Struct, frozen=True):
    """The user that a realm and a user name identify. Create it with `identify_user`.

    `subject` is stable, opaque and unique across realms: 22 characters of base64url, 128 bits of a digest. `shard` is
    the hash tag of all keys of the user: the first 12 bits of the subject as 3 hex digits.
    """

    realm: str
    username: str
    subject: str
    shard: str


def identify_user(realm: str, username: str) -> UserIdentity:
    """Return the identity for a realm and a user name. In realm main, A-Z counts as a-z.

    User names in realm main are e-mail addresses, which phones like to capitalise. Only ASCII letters are folded:
    folding all of Unicode could make one account out of two different addresses.
    """
    name = fold_email(username) if realm == MAIN_REALM else username
    digest = hashlib.sha256(f"user\n{realm}\n{name}".encode()).digest()
    subject = urlsafe_b64encode(digest[:16]).decode().rstrip("=")
    return UserIdentity(realm, name, subject, digest[:2].hex()[:3])


def identify_for_throttle(realm: str, username: str) -> UserIdentity:
    """Return the identity whose counters limit the logins with this user name, as it was typed."""
    return identify_user(realm, username if realm == MAIN_REALM else _fold_for_throttle(username))


def _fold_for_throttle(username: str) -> str:
    """Return the folded name under which logins are counted.

    A name that is longer than any user's counts by its beginning, because the time of normalizing grows with the square
    of the length.
    """
    username = username[: MAX_USERNAME_CHARACTERS + 1]
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", username).casefold()).strip()


def fold_email(address: str) -> str:
    """Return the e-mail address in its form for comparison: A-Z as a-z, and all other letters unchanged."""
    return address.translate(_ASCII_LOWER)


def normalize_username(username: str, username_claim: str) -> str:
    """Return the user name of an identity provider's user in this service. Only e-mail addresses are folded."""
    return fold_email(username) if username_claim == EMAIL_CLAIM else username


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A registered user.

    `revision` changes with every change of the record, so that a login can prove that the record it checked is still
    current. `upgraded_from` is the weaker hash that a login replaced by `password_hash`. A seed that still has the
    weaker hash has the same password.
    """

    realm: str
    username: str
    password_hash: str | None = None
    upgraded_from: str | None = None
    roles: tuple[str, ...] = ()
    name: str = ""
    disabled: bool = False
    revision: str = ""

    @property
    def identity(self) -> UserIdentity:
        return identify_user(self.realm, self.username)


def is_narrowed(old: User, new: User) -> bool:
    """Return True if sessions of the old record rest on something that the new record lacks.

    The user may have been disabled, or have lost a role, or have another password.
    """
    newly_disabled = new.disabled and not old.disabled
    return newly_disabled or old.password_hash != new.password_hash or not set(old.roles) <= set(new.roles)
