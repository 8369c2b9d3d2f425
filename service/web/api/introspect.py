"""POST /oauth2/v1/introspect, which describes a token to a gateway or an API.

Clauses: RFC 7662 §2, §2.1, §2.2, §2.3, §4
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from service.crypto.keyring import Keyring
from service.gateway.lookup import BearerLookup
from service.observability.metrics import CacheCounts
from service.protocol.bearer import AccessGrant
from service.protocol.client import check_introspection
from service.protocol.parameters import INTROSPECTION_PARAMETERS, require
from service.protocol.token_response import INACTIVE, Introspection, TokenUse
from service.store.records import FamilyRecord
from service.store.sessions.families import Families
from service.web.request.client_authentication import ClientAuthenticator
from service.web.request.reading import read_form
from service.web.responses import render_json


@dataclass(frozen=True, slots=True)
class IntrospectionEndpoint:
    authenticator: ClientAuthenticator
    bearer: BearerLookup
    counts: CacheCounts
    families: Families
    keyring: Keyring
    issuer: str

    async def post(self, request: Request) -> Response:
        return render_json(await self._introspect(request))

    async def _introspect(self, request: Request) -> Introspection:
        """Describe the token. Nothing is changed. The hint is not needed, because the token shows its own type.

        Clauses: RFC 7662 §2.1, §2.2 (what the caller may not see is not active), §2.3
        """
        form = await read_form(request, INTROSPECTION_PARAMETERS)
        caller = await self.authenticator.authenticate(request, form)
        require(form, "token")
        check_introspection(caller.client)
        refresh_token = self.keyring.parse_refresh_token(form["token"])
        if refresh_token is None:
            self.counts.count_lookup()
            grant = await self.bearer.lookup(form["token"])
            return self._describe("access_token", grant, grant.issued_at_ms, grant.expires_at_ms) if grant else INACTIVE
        family = await self.families.find_live(refresh_token) if caller.client.introspect == "all" else None
        # A refresh token was issued at the last refresh, which spent the generation before it.
        return self._describe("refresh_token", family, family.used_ms, family.expires_ms) if family else INACTIVE

    def _describe(
        self, token_use: TokenUse, grant: AccessGrant | FamilyRecord, issued_at_ms: int, expires_at_ms: int
    ) -> Introspection:
        """Return the response for a live token.

        Only an access token has a token_type, which states how to use the token at an API.

        Clauses: RFC 6749 §7.1, RFC 7662 §2.2
        """
        return Introspection(
            active=True,
            scope=grant.scope,
            client_id=grant.client_id,
            username=grant.username,
            realm=grant.realm,
            token_type="Bearer" if token_use == "access_token" else "",
            token_use=token_use,
            exp=expires_at_ms // 1000,
            iat=issued_at_ms // 1000,
            sub=grant.subject,
            iss=self.issuer,
        )
