"""The verdicts of the scripts that issue tokens, and the answer to each.

Clauses: RFC 6749 §4.1.3, §5.2, §6
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from .errors import InvalidGrant, InvalidScope, OAuthError

Success = Literal["rotated", "repeated", "recovered"]
SpendRefusal = Literal["replayed", "foreign", "without_secret", "withdrawn", "beyond", "unknown"]
CodeRefusal = Literal["repeated", "revoked", "unknown"]


class Refusal(NamedTuple):
    """The error that is sent, its reason, and the security event that is recorded, if there is one."""

    error: type[OAuthError]
    reason: str
    event: str = ""


SUCCESS_EVENTS: Final[dict[Success, str]] = {
    "rotated": "tokens_refreshed",
    "repeated": "refresh_token_repeated",
    "recovered": "lost_generations_recovered",
}

REFRESH_REFUSALS: Final[dict[SpendRefusal, Refusal]] = {
    "replayed": Refusal(InvalidGrant, "refresh_token_replayed", "refresh_token_replayed"),
    "foreign": Refusal(InvalidGrant, "refresh_token_of_another_client", "refresh_token_misused"),
    "without_secret": Refusal(InvalidGrant, "refresh_without_secret", "refresh_token_misused"),
    "withdrawn": Refusal(InvalidGrant, "refresh_token_scope_withdrawn"),
    "beyond": Refusal(InvalidScope, "scope_beyond_grant"),
    "unknown": Refusal(InvalidGrant, "refresh_token_unknown"),
}

CODE_REFUSALS: Final[dict[CodeRefusal, str]] = {
    "repeated": "code_repeated",
    "revoked": "code_revoked",
    "unknown": "code_unknown",
}
"""The reasons of InvalidGrant. A code that is exchanged twice has events of its own."""
