"""The bearer token of a request to an API: its grant, or the error that refuses it.

Clauses: RFC 6750 §2.1, §3.1, SPEC §4.5
"""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol.bearer import AccessGrant, check_scope, parse_bearer
from ..protocol.errors import InvalidScope, InvalidToken
from ..protocol.scope import Scope, parse_scope
from ..redis_client.deadline import StoreUnavailable
from .lookup import BearerLookup
from .outage_log import report_outage


def parse_required_scope(text: str) -> str:
    """Return the scope items that a token must have. An empty text requires no items.

    Raises ValueError if no single token can have all items, because such a requirement would refuse every request.
    """
    try:
        scope = parse_scope(text) if text else Scope()
        if len(scope.realms) > 1:
            raise InvalidScope("scope_of_two_realms")
    except InvalidScope as error:
        raise ValueError(f"no token can have the scope {text!r}: {error.description}") from None
    return str(scope)


async def require_grant(lookup: BearerLookup, authorization: Sequence[str], scope: str = "") -> AccessGrant:
    """Return the grant of the one bearer token in the Authorization headers.

    The token must have every item of the scope.

    Raises BearerMissing or OAuthError. An outage of the store raises TemporarilyUnavailable, and its reason is logged.
    """
    token = parse_bearer(authorization)
    try:
        grant = await lookup.lookup(token)
    except StoreUnavailable as outage:
        raise report_outage(outage) from outage
    if grant is None:
        raise InvalidToken("access_token_unknown")
    check_scope(grant, scope)
    return grant
