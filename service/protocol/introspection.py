"""The introspection response, which describes a token to an authorized caller.

Clauses: RFC 7662 §2.2, §4
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

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
