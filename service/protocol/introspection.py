"""What whoever introspects a token is told about it.

Clauses: RFC 7662 §2.2, §4
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from .scope import parse_realm

TokenUse = Literal["access_token", "refresh_token"]


class Introspection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of a token that is not live nothing but that is said; `exp` and `iat` are whole seconds since 1970, rounded down.

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
    """A live token; only an access token has a type, which says how to use it on an API.

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
