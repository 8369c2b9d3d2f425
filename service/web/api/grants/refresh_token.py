"""The refresh_token grant, which exchanges a refresh token for the next one and an access token.

Clauses: RFC 6749 §6, §10.4, SPEC §3, §4.2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from starlette.requests import Request

from service.crypto.keyring import Keyring, make_access_token
from service.observability.metrics import get_metrics
from service.protocol.client import REFRESH_TOKEN, check_scope
from service.protocol.errors import InvalidGrant, InvalidScope, OAuthError
from service.protocol.parameters import Form
from service.protocol.scope import check_narrowing, parse_realm, parse_scope
from service.protocol.token_response import TokenResponse
from service.store.families import Families, RefreshRefused
from service.web.api.grants.issue import make_token_response
from service.web.request.client_authentication import AuthenticatedClient
from service.web.request.security_events import record_request_event

PATTERN_LENGTH: Final = 3
"""Replays of this many generations in a row suggest that a second party uses the same refresh tokens."""

REPLAYS_OF_A_PATTERN: Final = 5
"""The number of replays of one generation that lost responses and two open tabs do not explain.

Only this replay of the generation raises the event replay_pattern; later ones do not repeat it.
"""

_SUCCESS_EVENTS: Final[dict[str, str]] = {
    "rotated": "tokens_refreshed",
    "repeated": "refresh_token_repeated",
    "recovered": "lost_generations_recovered",
}
_REFUSALS: Final[dict[str, tuple[type[OAuthError], str, str]]] = {
    "replayed": (InvalidGrant, "refresh_token_replayed", "refresh_token_replayed"),
    "foreign": (InvalidGrant, "refresh_token_of_another_client", "refresh_token_misused"),
    "without_secret": (InvalidGrant, "refresh_without_secret", "refresh_token_misused"),
    "withdrawn": (InvalidGrant, "refresh_token_scope_withdrawn", ""),
    "beyond": (InvalidScope, "scope_beyond_grant", ""),
    "unknown": (InvalidGrant, "refresh_token_unknown", ""),
}
"""The error, the reason, and the security event of each refusal."""


@dataclass(frozen=True, slots=True)
class RefreshTokenGrant:
    families: Families
    keyring: Keyring

    grant_type: ClassVar[str] = REFRESH_TOKEN
    required: ClassVar[tuple[str, ...]] = ("refresh_token",)

    async def issue(self, request: Request, form: Form, caller: AuthenticatedClient) -> TokenResponse:
        """Spend the refresh token and issue the next one. Every outcome takes one script call.

        Clauses: RFC 6749 §6, §10.4, SPEC §3, §4.2 (refresh_token)
        """
        wanted_scope = ""
        if "scope" in form:
            scope = parse_scope(form["scope"])
            check_narrowing(scope)
            check_scope(caller.client, scope)
            wanted_scope = str(scope)
        refresh_token = self.keyring.parse_refresh_token(form["refresh_token"])
        if refresh_token is None:
            raise InvalidGrant("refresh_token_malformed")
        access_token = make_access_token(refresh_token.shard)
        outcome = await self.families.spend(
            refresh_token,
            client_id=caller.client.client_id,
            secret_used=caller.secret_used,
            wanted_scope=wanted_scope,
            allowed_scope=caller.client.scope,
            access_token=access_token,
        )
        get_metrics().refresh_tally.count(outcome.verdict)
        client_id, username, family = caller.client.client_id, outcome.username, refresh_token.family_digest
        if isinstance(outcome, RefreshRefused):
            refusal, reason, event = _REFUSALS[outcome.verdict]
            if event:
                record_request_event(
                    request, event, client_id=client_id, username=username, family=family, reason=reason
                )
            raise refusal(reason)
        is_pattern = outcome.streak >= PATTERN_LENGTH or outcome.replays == REPLAYS_OF_A_PATTERN
        record_request_event(
            request,
            "replay_pattern" if is_pattern else _SUCCESS_EVENTS[outcome.verdict],
            client_id=client_id,
            username=username,
            realm=parse_realm(outcome.scope),
            family=family,
            scope=outcome.scope,
        )
        head = refresh_token._replace(generation=outcome.head)
        return make_token_response(self.keyring, access_token, head, outcome.lives_ms, outcome.scope)
