"""The rules for the claims of a logout token, with which an identity provider ends logins of its user here.

Clauses: OpenID Connect Back-Channel Logout 1.0 §2.4, §2.6, RFC 8417 §2.2
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .errors import InvalidRequest
from .provider_responses import Claims
from .user import is_username

LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"
LOGOUT_PATH: Final = "/oauth2/v1/backchannel-logout/"
"""The path of the endpoint. The name of the realm follows."""

MAX_AGE_SECONDS: Final = 600

_TYPES: Final = ("logout+jwt", "application/logout+jwt", "jwt")

_EXPECTED: Final = {
    "typ": "logout+jwt or JWT, or be missing",
    "alg": "an RS, PS, ES or EdDSA algorithm",
    "iss": "the issuer of this realm",
    "aud": "the client_id of this service, and so must azp, which is required with further audiences",
    "exp": "a time in the future",
    "nbf": "a time in the past",
    "iat": "a time within the last ten minutes",
    "jti": "text",
    "sub": "the user, in one line of at most 255 characters",
    "sid": "text, or be missing",
    "events": f"an object with the member {LOGOUT_EVENT}, which is an object",
    "nonce": "missing",
}


class LogoutToken(NamedTuple):
    """The user whose logins end, the `sid` of one login or an empty text for all, and the token's unique `jti`."""

    username: str
    sid: str
    jti: str


def parse_logout_claims(header: Mapping[str, Any], claims: Claims, now_seconds: int) -> LogoutToken:
    """Return what the token asks for. Raises InvalidRequest with the name of the first wrong claim.

    Issuer, audience and the types of the times and of `sub` must have been checked as those of an ID token.

    Clauses: OpenID Connect Back-Channel Logout 1.0 §2.6 (5 to 8)
    """
    events = claims.get("events")
    checks = {
        "typ": str(header.get("typ", "JWT")).lower() in _TYPES,
        "iat": now_seconds - claims["iat"] <= MAX_AGE_SECONDS,
        "jti": _is_text(claims.get("jti")),
        "sub": is_username(claims["sub"]),
        "sid": "sid" not in claims or _is_text(claims["sid"]),
        "events": isinstance(events, dict) and isinstance(events.get(LOGOUT_EVENT), dict),
        "nonce": "nonce" not in claims,
    }
    for claim, is_right in checks.items():
        if not is_right:
            raise make_claim_refusal(claim)
    return LogoutToken(claims["sub"], claims.get("sid", ""), claims["jti"])


def make_claim_refusal(claim: str) -> InvalidRequest:
    """Return the error for a wrong claim or header parameter. It repeats no value."""
    return InvalidRequest("logout_token_claim_wrong", name=f"{claim} must be {_EXPECTED[claim]}")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""
