"""Rules for bearer access tokens: parsing the Authorization header, and checking the scope of a token.

Clauses: RFC 6749 §3.3, RFC 6750 §2.1, §3, §3.1, SPEC §4.4, §4.5
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from .errors import BearerMissing, InsufficientScope, InvalidToken, MalformedBearer
from .grammar import B64TOKEN, SCOPE_TOKEN
from .scope import parse_realm

MAX_NEEDED_SCOPE_CHARACTERS: Final = 1024
"""The limit for a required scope: the challenge repeats it, and proxies refuse long headers."""


class AccessGrant(msgspec.Struct, frozen=True):
    """The grant behind a live access token. Times are in milliseconds since 1970 by the clock of Redis.

    Authorise and store by `subject`, which never changes and is unique across realms. `username` is for display: it may
    change, and two users of different realms may share it.
    """

    issued_at_ms: int
    expires_at_ms: int
    family_digest: str
    client_id: str
    subject: str
    username: str
    scope: str

    @property
    def realm(self) -> str:
        return parse_realm(self.scope)

    def covers(self, scope: str) -> bool:
        """Return True if the token has every item of `scope`; items are separated by spaces."""
        return set(scope.split()) <= set(self.scope.split(" "))


def parse_bearer(authorization: Sequence[str]) -> str:
    """Return the token of the only Bearer credential in `authorization`, the list of all Authorization header values.

    Raises MalformedBearer for several headers, BearerMissing for no Bearer credential, and InvalidToken for a malformed
    token.

    Clauses: RFC 6750 §2.1, §3.1 (no credential: no error code; two: invalid_request; a malformed one: invalid_token)
    """
    if len(authorization) > 1:
        raise MalformedBearer("bearer_repeated")
    scheme, _, access_token = "".join(authorization).strip(" \t").partition(" ")
    access_token = access_token.strip(" \t")
    if scheme.lower() != "bearer" or not access_token:
        raise BearerMissing
    if not B64TOKEN.fullmatch(access_token):
        raise InvalidToken("access_token_unknown")
    return access_token


def check_scope(grant: AccessGrant, scope: str) -> None:
    """Raise InsufficientScope unless the token has every item of `scope`.

    Items are separated by single spaces. An empty scope requires nothing. No token has an unknown item.

    Clauses: RFC 6749 §3.3, RFC 6750 §3, §3.1 (insufficient_scope)
    """
    if not scope:
        return
    # The length is checked first, because the grammar is checked item by item.
    if len(scope) > MAX_NEEDED_SCOPE_CHARACTERS or not all(map(SCOPE_TOKEN.fullmatch, scope.split(" "))):
        raise InsufficientScope("needed_scope_malformed")
    if not grant.covers(scope):
        raise InsufficientScope("needed_scope_missing", scope=scope)
