"""POST /oauth2/v1/revokeAll, which revokes all sessions and tokens of the bearer's user, in every client.

Clauses: RFC 6750 §2.1, §3.1, SPEC §3, §4.4, §7.5
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from service.protocol.bearer import parse_bearer
from service.protocol.errors import InvalidToken
from service.protocol.scope import parse_realm
from service.protocol.token_form import parse_access_token
from service.store.access_tokens import AccessTokens
from service.store.revocations import Revocations
from service.web.request.reading import list_header_values
from service.web.request.security_events import record_request_event
from service.web.responses import render_nothing


@dataclass(frozen=True, slots=True)
class RevokeAllEndpoint:
    access_tokens: AccessTokens
    revocations: Revocations

    async def post(self, request: Request) -> Response:
        access_token = parse_access_token(parse_bearer(list_header_values(request.scope, b"authorization")))
        grant = await self.access_tokens.find(access_token) if access_token else None
        if access_token is None or grant is None:
            raise InvalidToken("access_token_unknown")
        await self.revocations.revoke_all(access_token.shard, grant.subject, kept_family=grant.family_digest)
        realm = parse_realm(grant.scope)
        record_request_event(request, "revoke_all", username=grant.username, realm=realm, reason="bearer")
        return render_nothing()
