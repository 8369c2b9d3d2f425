"""Resource owners: a realm and a user name, and the stable identifiers derived from them.

Clauses: SPEC §2.2, §4.2 (a user of one realm is not the user of the same name in another)
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, Literal, NamedTuple

import msgspec

from .grammar import is_unicode_without_line_ends
from .scope import MAIN_REALM

MAX_NAME_CHARACTERS: Final = 255
MIN_PASSWORD_CHARACTERS: Final = 8
"""The minimum length of a new password, unless the operator configures another one."""

MAX_PASSWORD_CHARACTERS: Final = 1024

EMAIL_CLAIM: Final = "email"

_BLANKS: Final = (*range(0x21), *range(0x7F, 0xA1), 0x1680, 0x180E, *range(0x2000, 0x2010), *range(0x2028, 0x2030))
_OTHERS: Final = (0xAD, 0x34F, 0x61C, 0x115F, 0x1160, *range(0x205F, 0x2070), 0x2800, 0x3000, 0x3164)
_SELECTORS: Final = (*range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0)
_INVISIBLE: Final = "".join(map(chr, _BLANKS + _OTHERS + _SELECTORS))
"""Control characters, white space, and the characters without width that keyboards and copied text add to a name."""

INVISIBLE_WITHIN: Final = frozenset(_INVISIBLE) - {" "}
"""The characters that no user name in realm main may have, in its one form: two such names would look the same."""

_DROPPED: Final = dict.fromkeys(map(ord, _INVISIBLE))

_MAX_TYPED_CHARACTERS: Final = 4 * MAX_NAME_CHARACTERS
"""NFC makes one character of at most four, so a name that is longer than this is longer than any user's in NFC, too."""

_EXTERNAL_SUBJECT: Final = re.compile("~([A-Za-z0-9_-]{21}[AQgw])")
"""A tilde and the base64url of 128 bits, whose last character has only two of them."""

ID_FORM: Final = re.compile("(?!~)[!-$&-~]{1,128}")
"""The ids that a user of realm main can have. A percent sign would need an escape in a header."""

UserNarrowing = Literal["user_disabled", "user_renamed", "password_set", "role_removed"]

_WIDE_SIGNS: Final = str.maketrans("\uff20\ufe6b\u3002\uff61\ufe12", "@@...")
"""Signs of East Asian keyboards that separate the parts of an address."""


class UserIdentity(msgspec.Struct, frozen=True):
    """The user that a realm and a user name identify. Create it with `identify_user`.

    `digest` is of both: 128 bits, 22 characters of base64url. `shard` is the hash tag of all keys of the user: the
    first 12 bits of the digest as 3 hex digits.
    """

    realm: str
    username: str
    digest: str
    shard: str


def identify_user(realm: str, username: str) -> UserIdentity:
    """Return the identity for a realm and a user name, which in realm main may be as it was typed."""
    name = normalize_username(username) if realm == MAIN_REALM else username
    digest = hashlib.sha256(f"user\n{realm}\n{name}".encode()).digest()
    return UserIdentity(realm, name, urlsafe_b64encode(digest[:16]).decode().rstrip("="), digest[:2].hex()[:3])


def is_username(text: str) -> bool:
    """Return True if a user of some realm can have this name, in the form that the realm gives it."""
    return len(text) <= MAX_NAME_CHARACTERS and is_unicode_without_line_ends(text)


def identify_digest(digest: str) -> UserIdentity:
    """Return the identity of a digest, without realm and user name."""
    return UserIdentity("", "", digest, urlsafe_b64decode(digest[:4]).hex()[:3])


def identify_external_subject(subject: str) -> UserIdentity | None:
    """Return the identity of the external user with this subject, or None if no external user can have it."""
    found = _EXTERNAL_SUBJECT.fullmatch(subject)
    return identify_digest(found[1]) if found else None


def identify_for_throttle(realm: str, username: str) -> UserIdentity:
    """Return the identity whose counters limit the logins with this user name, as it was typed.

    An identity provider may treat more spellings as one name than realm main does.
    """
    name = normalize_username(username)
    return identify_user(realm, name if realm == MAIN_REALM else unicodedata.normalize("NFKC", name).casefold())


def normalize_username(typed: str) -> str:
    """Return the one form of a user name in realm main, which its record, its events and its sessions have.

    Blanks and invisible characters at the ends are dropped, also at the end of the local part of an e-mail address, and
    anywhere in its domain. Letters are in lower case, and the domain is in Unicode. The result is the same if it is
    normalized again. Of a name that is longer than any user's only the beginning counts, because the time of
    normalizing grows with the square of the length.
    """
    name = typed.strip(_INVISIBLE)[: _MAX_TYPED_CHARACTERS + 1].translate(_WIDE_SIGNS)
    local, at, domain = name.rpartition("@")
    if at:
        return _lower("NFC", local).strip(_INVISIBLE) + at + _normalize_domain(domain)
    return _lower("NFC", name).strip(_INVISIBLE)


def _normalize_domain(domain: str) -> str:
    domain = _lower("NFKC", domain.translate(_DROPPED)).translate(_DROPPED)
    # A letter and an accent that was spaced before may now be neighbours, and are one character then.
    return ".".join(map(_decode_label, _lower("NFKC", domain).strip(".").split(".")))


def _decode_label(label: str) -> str:
    """Return the Unicode form of a label of a domain, or the label itself if it has no other form."""
    if not label.startswith("xn--"):
        return label
    try:
        text = label.removeprefix("xn--").encode("ascii").decode("punycode")
    except UnicodeError:
        return label
    is_encoded = text.isprintable() and not text.isascii()
    return text if is_encoded and _normalize_domain(text.translate(_WIDE_SIGNS)) == text else label


def _lower(form: Literal["NFC", "NFKC"], text: str) -> str:
    """Return the text in lower case and in this form of Unicode. The two forms of the Greek letter sigma are one.

    The text is normalized twice, because a change of case can change the order of a letter's accents.
    """
    return unicodedata.normalize(form, unicodedata.normalize(form, text).lower().replace("\u03c2", "\u03c3"))


def normalize_claim(username: str, username_claim: str) -> str:
    """Return the user name of an identity provider's user in this service. Only e-mail addresses are normalized."""
    return normalize_username(username) if username_claim == EMAIL_CLAIM else username


def digest_sid(realm: str, sid: str) -> str:
    """Return how records name a login at the realm's identity provider whose session id there is `sid`.

    The result is empty in realm main, "-" if the provider named no session id, or else 22 characters of base64url, 128
    bits of a digest.

    Clauses: OpenID Connect Back-Channel Logout 1.0 §2.1
    """
    if realm == MAIN_REALM:
        return ""
    digest = hashlib.sha256(f"sid\n{realm}\n{sid}".encode(errors="surrogatepass")).digest()
    return urlsafe_b64encode(digest[:16]).decode().rstrip("=") if sid else "-"


class User(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A registered user.

    `revision` changes with every change of the record, so that a login can prove that the record it checked is still
    current. `upgraded_from` is the digest of the hash that a login replaced by `password_hash`, a weaker one or one of
    another kind. A seed that still has that hash has the same password. `imported_hash` is the digest of the hash that
    the last import of the user gave. `id` is empty in external realms. `renamed_to` is the new name while the user is
    renamed: nothing starts from the record then.
    """

    realm: str
    username: str
    id: str = ""
    password_hash: str | None = None
    upgraded_from: str | None = None
    imported_hash: str | None = None
    roles: tuple[str, ...] = ()
    name: str = ""
    disabled: bool = False
    renamed_to: str = ""
    revision: str = ""

    @property
    def identity(self) -> UserIdentity:
        return identify_user(self.realm, self.username)

    @property
    def subject(self) -> str:
        """The outward id, which is unique over realms: the id in realm main, `~` and the digest in external realms."""
        return self.id if self.realm == MAIN_REALM else f"~{self.identity.digest}"


class Login(NamedTuple):
    """A checked login. It is void if the user's sessions were revoked at or after `begun_ms` (Redis time).

    `sid` is the result of `digest_sid`. `shown_name` is the user's display name at the identity provider. These two are
    empty in realm main.
    """

    user: User
    begun_ms: int
    sid: str = ""
    shown_name: str = ""


def find_user_narrowing(old: User, new: User) -> UserNarrowing | None:
    """Return what sessions of the old record rest on and the new record lacks, or None."""
    if new.disabled and not old.disabled:
        return "user_disabled"
    if old.password_hash != new.password_hash:
        return "password_set"
    return None if set(old.roles) <= set(new.roles) else "role_removed"
