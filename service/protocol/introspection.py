"""The introspection response, which describes a token to an authorized caller.

Clauses: RFC 7662 §2.2, §4
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from .scope import parse_realm

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


def describe_token(
    token_use: TokenUse,
    *,
    scope: str,
    client_id: str,
    username: str,
    subject: str,
    issued_at_ms: int,
    expires_at_ms: int,
    issuer: str,
) -> Introspection:
    """Return the response for a live token.

    Only an access token has a token_type, which states how to use the token at an API.

    Clauses: RFC 6749 §7.1, RFC 7662 §2.2
    """
    return Introspection(
        active=True,
        scope=scope,
        client_id=client_id,
        username=username,
        realm=parse_realm(scope),
        token_type="Bearer" if token_use == "access_token" else "",
        token_use=token_use,
        exp=expires_at_ms // 1000,
        iat=issued_at_ms // 1000,
        sub=subject,
        iss=issuer,
    )
