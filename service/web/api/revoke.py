"""POST /oauth2/v1/revoke, which revokes an access token, or a refresh token with its whole family.

Clauses: RFC 7009 §2.1, §2.2, SPEC §3, §4.3, §7.5
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from service.crypto.keyring import Keyring
from service.protocol.parameters import REVOCATION_PARAMETERS, require
from service.protocol.token_form import parse_access_token
from service.store.access_tokens import AccessTokens
from service.store.families import Families
from service.web.request.client_authentication import ClientAuthenticator
from service.web.request.reading import read_form
from service.web.request.security_events import record_request_event
from service.web.responses import render_nothing


@dataclass(frozen=True, slots=True)
class RevocationEndpoint:
    authenticator: ClientAuthenticator
    access_tokens: AccessTokens
    families: Families
    keyring: Keyring

    async def post(self, request: Request) -> Response:
        """Revoke the token, unless it is another client's.

        The hint is not needed, because the token shows its own type.

        Clauses: RFC 7009 §2.1, §2.2 (an invalid token is no error), SPEC §4.3, §7.5
        """
        form = await read_form(request, REVOCATION_PARAMETERS)
        caller = await self.authenticator.authenticate(request, form)
        require(form, "token")
        await self._revoke(request, form["token"], caller.client.client_id)
        return render_nothing()

    async def _revoke(self, request: Request, token: str, client_id: str) -> None:
        access_token = parse_access_token(token)
        if access_token is not None:
            username = await self.access_tokens.revoke(access_token, client_id=client_id)
            if username is not None:
                record_request_event(request, "access_token_revoked", client_id=client_id, username=username)
            return
        refresh_token = self.keyring.parse_refresh_token(token)
        if refresh_token is not None:
            family = refresh_token.family_digest
            username = await self.families.end(refresh_token.shard, family, client_id=client_id, reason="revoked")
            if username is not None:
                record_request_event(
                    request, "refresh_token_revoked", client_id=client_id, username=username, family=family
                )
