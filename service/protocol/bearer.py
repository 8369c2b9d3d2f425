"""A bearer access token in the Authorization header.

Clauses: RFC 6750 §2.1, §3, §3.1, SPEC §4.4, §4.5
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from service.protocol.errors import BearerMissing, InvalidToken, MalformedBearer
from service.protocol.grammar import B64TOKEN


class AccessGrant(msgspec.Struct, frozen=True, kw_only=True):
    """What a live access token stands for."""

    issued_at_ms: int
    expires_at_ms: int
    family_digest: str
    client_id: str
    subject: str
    username: str
    scope: str


def parse_bearer(authorization: Sequence[str]) -> str:
    """The token of the one Bearer credential among all Authorization header values.

    Clauses: RFC 6750 §2.1, §3.1 (no credential: no error code; two: invalid_request; a malformed one: invalid_token)
    """
    if len(authorization) > 1:
        raise MalformedBearer("bearer_repeated")
    scheme, _, access_token = "".join(authorization).strip().partition(" ")
    access_token = access_token.strip()
    if scheme.lower() != "bearer" or not access_token:
        raise BearerMissing
    if not B64TOKEN.fullmatch(access_token):
        raise InvalidToken("access_token_unknown")
    return access_token
