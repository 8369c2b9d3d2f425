"""The HTTP form of an error: status, headers and body, independent of the framework that sends it.

Clauses: RFC 6749 §5.2, RFC 6750 §3, §3.1, SPEC §2.4, §7.1
"""

from __future__ import annotations

import msgspec

from .errors import BearerMissing, OAuthError
from .token_response import NO_STORE_HEADERS


class ErrorResponse(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes


def render_refusal(error: OAuthError | BearerMissing) -> ErrorResponse:
    """Return the HTTP response for an error.

    Clauses: RFC 6750 §3.1 (a challenge only, and no error code, where no credential was sent)
    """
    headers = NO_STORE_HEADERS | {"Content-Type": "application/json"}
    if error.challenge is not None:
        headers["WWW-Authenticate"] = error.challenge
    if isinstance(error, BearerMissing):
        return ErrorResponse(401, headers, b"")
    if error.retry_after_seconds is not None:
        headers["Retry-After"] = str(error.retry_after_seconds)
    body = msgspec.json.encode({"error": error.error, "error_description": error.description})
    return ErrorResponse(error.status, headers, body)
