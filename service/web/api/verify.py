"""/oauth2/v1/verify, the forward authentication for a proxy that holds a request to an API.

Proxies understand 200, 401 and 403, and treat any other status as a failure of their own. The only other status here is
503: if a token cannot be checked, its request must not pass.

Clauses: RFC 6749 §3.1, Appendix B, RFC 6750 §2.1, §3, §3.1, SPEC §4.5
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.gateway.bearer import require_grant
from service.gateway.lookup import BearerLookup
from service.observability.metrics import CacheCounts
from service.protocol.bearer import AccessGrant, check_scope
from service.protocol.errors import (
    BearerMissing,
    InsufficientScope,
    InvalidRequest,
    InvalidToken,
    MalformedBearer,
    OAuthError,
    TemporarilyUnavailable,
)
from service.protocol.parameters import read_fields
from service.redis_client.deadline import StoreUnavailable
from service.web.request.reading import list_header_values
from service.web.responses import RawResponse

_UNPRINTABLE: Final = re.compile(r"[^\x20-\x24\x26-\x7E]+|^ +| +$")
"""The characters to percent-encode: all but printable ASCII, the percent sign, and spaces at both ends.

A header would lose spaces at its ends.
"""

MAX_ENCODED: Final = 1_000
"""The number of names that are kept in their encoded form."""

log = logging.getLogger("service")


@dataclass(frozen=True, slots=True)
class VerifyEndpoint:
    bearer: BearerLookup
    counts: CacheCounts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of any method, since a proxy uses the method of the request that it holds."""
        response = await self.answer(Request(scope))
        await response(scope, receive, send)

    async def answer(self, request: Request) -> Response:
        """Return the response. The body of the request is not read.

        A success is 200 with the grant in headers. Raises InvalidToken (401) if there are two credentials: other
        endpoints answer two by 400, which a proxy would treat as a failure. An unexpected error becomes a 503 here. The
        application's table of error handlers answers all expected errors.
        """
        scope = request.scope
        try:
            authorization = list_header_values(scope, b"authorization")
            self.counts.count_lookup()
            grant = await require_grant(self.bearer, authorization)
            if scope["query_string"]:
                check_scope(grant, parse_needed_scope(scope["query_string"]))
            return RawResponse(b"", _describe(grant, self.bearer.now_ms()))
        except MalformedBearer:
            raise InvalidToken("bearer_repeated") from None
        except (OAuthError, BearerMissing, StoreUnavailable):
            raise
        except Exception:
            log.exception("unexpected error while verifying an access token")
            raise TemporarilyUnavailable("unforeseen", retry_after_seconds=1) from None


def parse_needed_scope(query: bytes) -> str:
    """Return the parameter `scope` of a query string.

    Raises InsufficientScope if the query has anything else, so that no misspelt rule of a gateway admits every token.

    Clauses: RFC 6749 §3.1, Appendix B
    """
    with suppress(InvalidRequest):
        match read_fields(query):
            case [("scope", str(needed))] if needed:
                return needed
    raise InsufficientScope("needed_scope_malformed")


def _describe(grant: AccessGrant, now_ms: int) -> list[tuple[bytes, bytes]]:
    return [
        (b"cache-control", b"no-store"),
        (b"x-auth-subject", grant.subject.encode()),
        (b"x-auth-realm", grant.realm.encode()),
        (b"x-auth-user", _encode(grant.username)),
        (b"x-auth-client", _encode(grant.client_id)),
        (b"x-auth-scope", grant.scope.encode()),
        (b"x-auth-expires-in", b"%d" % (max(0, grant.expires_at_ms - now_ms) // 1000)),
    ]


@lru_cache(MAX_ENCODED)
def _encode(text: str) -> bytes:
    """Return printable ASCII unchanged and the rest percent-encoded. Two different texts stay different."""
    return _UNPRINTABLE.sub(lambda part: quote(part[0], safe=""), text).encode()
