"""POST /oauth2/v1/introspect, which describes a token to a gateway or an API.

Clauses: RFC 7662 §2, §2.1, §2.2, §2.3, §4
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from service.crypto.keyring import Keyring, RefreshToken
from service.gateway.lookup import BearerLookup
from service.observability.metrics import CacheCounts
from service.protocol.client import check_introspection
from service.protocol.introspection import INACTIVE, Introspection, describe_token
from service.protocol.parameters import INTROSPECTION_PARAMETERS, require
from service.store.families import Families
from service.web.request.client_authentication import ClientAuthenticator
from service.web.request.form import read_form
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
        """Describe the token. Nothing is changed. The hint is not needed, because the token shows its own type.

        Clauses: RFC 7662 §2.1, §2.2 (what the caller may not see is not active), §2.3
        """
        form = await read_form(request, INTROSPECTION_PARAMETERS)
        caller = await self.authenticator.authenticate(request, form)
        require(form, "token")
        check_introspection(caller.client)
        refresh_token = self.keyring.parse_refresh_token(form["token"])
        if refresh_token is None:
            return render_json(await self._describe_access_token(form["token"]))
        may_see = caller.client.introspect == "all"
        return render_json(await self._describe_refresh_token(refresh_token) if may_see else INACTIVE)

    async def _describe_access_token(self, token: str) -> Introspection:
        self.counts.count_lookup()
        grant = await self.bearer.lookup(token)
        if grant is None:
            return INACTIVE
        return describe_token(
            "access_token",
            scope=grant.scope,
            client_id=grant.client_id,
            username=grant.username,
            subject=grant.subject,
            issued_at_ms=grant.issued_at_ms,
            expires_at_ms=grant.expires_at_ms,
            issuer=self.issuer,
        )

    async def _describe_refresh_token(self, refresh_token: RefreshToken) -> Introspection:
        """Describe a refresh token if it is live.

        Its time of issue is the last refresh, which spent the generation before it.
        """
        family = await self.families.find_live(refresh_token)
        if family is None:
            return INACTIVE
        return describe_token(
            "refresh_token",
            scope=family.scope,
            client_id=family.client_id,
            username=family.username,
            subject=family.subject,
            issued_at_ms=family.last_used_at_ms,
            expires_at_ms=family.expires_at_ms,
            issuer=self.issuer,
        )
