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
            raise InvalidRequest("logout_token_claim_wrong", name=claim)
    return LogoutToken(claims["sub"], claims.get("sid", ""), claims["jti"])


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""
