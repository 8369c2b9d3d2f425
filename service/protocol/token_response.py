"""The responses about tokens and their users, and the two headers that keep a response out of caches.

Clauses: RFC 6749 §5.1, RFC 7662 §2.2, §4, SPEC §2.1
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

NO_STORE_HEADERS: Final = {"Cache-Control": "no-store, no-cache", "Pragma": "no-cache"}


class TokenResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The token response. All fields are always present; `expires_in` is in whole seconds, rounded down."""

    access_token: str
    token_type: str = "Bearer"
    expires_in: int
    refresh_token: str
    scope: str


TokenUse = Literal["access_token", "refresh_token"]


class Introspection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An introspection response. An inactive token has the field `active` only, so nothing else is revealed.

    `exp` and `iat` are in whole seconds since 1970, rounded down.

    Clauses: RFC 7662 §2.2
    """

    active: bool
    scope: str = ""
    client_id: str = ""
    username: str = ""
    realm: str = ""
    token_type: str = ""
    token_use: str = ""
    exp: int = 0
    iat: int = 0
    sub: str = ""
    iss: str = ""


INACTIVE: Final = Introspection(active=False)
