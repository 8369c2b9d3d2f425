"""POST /oauth2/v1/revoke and POST /oauth2/v1/revokeAll.

The first revokes an access token, or a refresh token with its whole family. The second revokes all sessions and tokens
of the bearer's user, in every client.

Clauses: RFC 6750 §2.1, §3.1, RFC 7009 §2.1, §2.2, SPEC §3, §4.3, §4.4, §7.5
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from service.crypto.keyring import Keyring
from service.protocol.bearer import parse_bearer
from service.protocol.errors import InvalidToken
from service.protocol.parameters import REVOCATION_PARAMETERS, require
from service.protocol.token_form import parse_access_token
from service.protocol.user import identify_user
from service.store.sessions.access_tokens import AccessTokens
from service.store.sessions.families import Families
from service.store.sessions.revocations import Revocations
from service.web.request.client_authentication import ClientAuthenticator
from service.web.request.reading import list_header_values, read_form
from service.web.request.security_events import record_user_event
from service.web.responses import render_nothing


@dataclass(frozen=True, slots=True)
class RevocationEndpoint:
    authenticator: ClientAuthenticator
    access_tokens: AccessTokens
    families: Families
    keyring: Keyring

    async def post(self, request: Request) -> Response:
        """Revoke the token, unless it is another client's.

        The hint is not needed, because the token shows its own type. White space around the token is ignored: a script
        often adds a line end, and the answer would not show that the token is still live.

        Clauses: RFC 7009 §2.1, §2.2 (an invalid token is not an error), SPEC §4.3, §7.5
        """
        form = await read_form(request, REVOCATION_PARAMETERS)
        caller = await self.authenticator.authenticate(request, form)
        require(form, "token")
        await self._revoke(request, form["token"].strip(), caller.client.client_id)
        return render_nothing(request)

    async def _revoke(self, request: Request, token: str, client_id: str) -> None:
        access_token = parse_access_token(token)
        if access_token is not None:
            user = await self.access_tokens.revoke(access_token, client_id=client_id)
            if user is not None:
                record_user_event(request, "access_token_revoked", user, client_id=client_id)
            return
        refresh_token = self.keyring.parse_refresh_token(token)
        if refresh_token is not None:
            family = refresh_token.family_digest
            user = await self.families.end(refresh_token.shard, family, client_id=client_id, reason="revoked")
            if user is not None:
                record_user_event(request, "refresh_token_revoked", user, client_id=client_id, session=family)


@dataclass(frozen=True, slots=True)
class RevokeAllEndpoint:
    access_tokens: AccessTokens
    revocations: Revocations

    async def post(self, request: Request) -> Response:
        access_token = parse_access_token(parse_bearer(list_header_values(request.scope, b"authorization")))
        grant = await self.access_tokens.find(access_token) if access_token else None
        if access_token is None or grant is None:
            raise InvalidToken("access_token_unknown")
        digest = identify_user(grant.realm, grant.username).digest
        await self.revocations.revoke_all(access_token.shard, digest, kept_family=grant.family_digest)
        record_user_event(request, "revoke_all", grant, reason="bearer")
        return render_nothing(request)
