"""A bearer access token in the Authorization header, and whether it has the scope that is needed.

Clauses: RFC 6749 §3.3, RFC 6750 §2.1, §3, §3.1, SPEC §4.4, §4.5
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from .errors import BearerMissing, InsufficientScope, InvalidRequest, InvalidToken, MalformedBearer
from .grammar import B64TOKEN, SCOPE_TOKEN
from .parameters import parse_form
from .scope import has_known_items, parse_realm

MAX_NEEDED_SCOPE_CHARACTERS: Final = 1024
"""A challenge repeats what was needed, and proxies refuse long headers."""


class AccessGrant(msgspec.Struct, frozen=True, kw_only=True):
    """What a live access token stands for; times in milliseconds since 1970 by Redis's clock.

    `subject` is stable, opaque and unique over realms: what to authorise by. `username` is what people call the user;
    two users of different realms may share it.
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
        """Whether the token has every item of this scope; items are separated by spaces."""
        return set(scope.split()) <= set(self.scope.split(" "))


def parse_bearer(authorization: Sequence[str]) -> str:
    """The token of the one Bearer credential among all Authorization header values.

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


def parse_needed_scope(query: bytes) -> str:
    """The parameter `scope` of a query string; empty where nothing is needed.

    A query that cannot be read as a whole is refused, whatever was meant by it.

    Clauses: RFC 6749 §3.1, Appendix B
    """
    if not query:
        return ""
    try:
        return parse_form(query, {"scope"}).get("scope", "")
    except InvalidRequest as error:
        if error.reason == "parameters_too_many":
            raise InsufficientScope("parameters_too_many") from None
        raise InsufficientScope("needed_scope_malformed") from None


def check_scope(grant: AccessGrant, scope: str) -> None:
    """Every item of `scope`, which are separated by single spaces, is one that the token has; empty: nothing is needed.

    An item that nobody knows is one that no token has.

    Clauses: RFC 6749 §3.3, RFC 6750 §3, §3.1 (insufficient_scope)
    """
    if not scope:
        return
    # The length first: the grammar is checked item by item.
    if len(scope) > MAX_NEEDED_SCOPE_CHARACTERS or not all(map(SCOPE_TOKEN.fullmatch, scope.split(" "))):
        raise InsufficientScope("needed_scope_malformed")
    if grant.covers(scope):
        return
    if not has_known_items(scope):
        # The caller hears the same; the log tells a rule that lets nobody pass from a token that lacks something.
        raise InsufficientScope("needed_scope_unknown", scope=scope)
    raise InsufficientScope("needed_scope_missing", scope=scope)
