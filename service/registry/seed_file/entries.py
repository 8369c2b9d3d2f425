"""The entries of a seed file.

Field names are those of RFC 7591, if it defines one for the field.

Clauses: RFC 6749 §2, RFC 7591 §2, SPEC §2.3
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from service.config.parsers import parse_duration_ms, parse_duration_or_zero_ms
from service.protocol.client import Seconds
from service.protocol.grammar import make_printable
from service.protocol.scope import MAIN_REALM

GrantType = Literal["authorization_code", "password", "refresh_token"]
Role = Literal["enduser", "organisation", "admin", "partner", "device", "orderer"]
Introspect = bool | Literal["all"]

LIFETIMES: Final[dict[str, Callable[[str], int]]] = {
    "access_token_ttl": parse_duration_ms,
    "refresh_token_ttl": parse_duration_ms,
    "session_max_age": parse_duration_ms,
    "refresh_grace": parse_duration_or_zero_ms,
}
"""The lifetimes that a client may have of its own, with the parsers of the settings that they replace."""


def read_lifetime(name: str, text: str) -> Seconds:
    """Return a client's lifetime, as a whole number where it is one. Raises ValueError with what was expected."""
    ms = LIFETIMES[name](text)
    return ms / 1000 if ms % 1000 else ms // 1000


class _Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The base of all entries.

    A field with its default value counts as one that the file does not have.

    In a user and a client, `disabled` is None if the file does not say it. Then the record is left as it is.
    """


class RealmEntry(_Entry, frozen=True, kw_only=True):
    """An external realm, with the identity provider that checks its logins.

    `client_secret` is None if the file does not say it. Then the secret of the record stays.
    """

    client_id: str
    client_secret: str | None = None
    name: str = ""
    issuer: str = ""
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    introspection_endpoint: str = ""
    userinfo_endpoint: str = ""
    jwks_uri: str = ""
    scope: str = ""
    username_claim: str = "sub"
    trust_email: bool = False
    default_roles: tuple[Role, ...] = ()


class ClientEntry(_Entry, frozen=True, kw_only=True):
    client_id: str
    client_secret: str | None = None
    client_secret_hash: str | None = None
    client_name: str = ""
    redirect_uris: tuple[str, ...] = ()
    grant_types: tuple[GrantType, ...] = ()
    scope: str = ""
    default_scope: str = ""
    cors_origins: tuple[str, ...] = ()
    require_pkce: bool = False
    introspect: Introspect = False
    revoke_users: bool = False
    manage_users: bool = False
    access_token_ttl: Seconds | None = None
    refresh_token_ttl: Seconds | None = None
    session_max_age: Seconds | None = None
    refresh_grace: Seconds | None = None
    disabled: bool | None = None


class UserEntry(_Entry, frozen=True, kw_only=True):
    username: str
    realm: str = MAIN_REALM
    id: str = ""
    password: str | None = None
    password_hash: str | None = None
    roles: tuple[Role, ...] = ()
    name: str = ""
    disabled: bool | None = None


class Seed(msgspec.Struct, frozen=True, kw_only=True):
    """A seed file without mistakes. `fingerprint` is a digest of the file as it was read."""

    realms: dict[str, RealmEntry] = {}
    clients: tuple[ClientEntry, ...] = ()
    users: tuple[UserEntry, ...] = ()
    fingerprint: bytes = b""

    @property
    def size(self) -> int:
        """The number of entries."""
        return len(self.realms) + len(self.clients) + len(self.users)


class BadSeed(Exception):
    """The seed has mistakes.

    `mistakes` are lines of the form `clients[2].redirect_uris[0]: what is wrong and what was expected`.
    """

    def __init__(self, mistakes: tuple[str, ...], file: Path | None = None) -> None:
        self.mistakes = tuple(map(make_printable, mistakes))  # they contain keys from the file
        super().__init__("; ".join(self.mistakes))
        self.file = file
