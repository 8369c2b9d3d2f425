"""GET and POST /oauth2/v1/userinfo, which tells an application who logged in.

Clauses: RFC 6750 §2.1, §3.1, SPEC §4.5
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from service.gateway.bearer import require_grant
from service.gateway.lookup import BearerLookup
from service.observability.metrics import CacheCounts
from service.protocol.errors import InvalidToken
from service.protocol.scope import MAIN_REALM, parse_scope
from service.realms.login import Logins
from service.web.request.reading import list_header_values
from service.web.responses import render_json


@dataclass(frozen=True, slots=True)
class UserInfoEndpoint:
    bearer: BearerLookup
    counts: CacheCounts
    logins: Logins

    async def answer(self, request: Request) -> Response:
        """Describe the bearer's user. The body of a POST is not read.

        Raises InvalidToken if the name belongs to another user of realm main now, or to nobody who can log in. A user
        of an external realm needs no record.
        """
        self.counts.count_lookup()
        grant = await require_grant(self.bearer, list_header_values(request.scope, b"authorization"))
        user = await self.logins.find_user(grant.realm, grant.username)
        is_in_main = grant.realm == MAIN_REALM
        if is_in_main and (user is None or user.id != grant.subject):
            raise InvalidToken("access_token_unknown")
        claims = {
            "sub": grant.subject,
            "username": grant.username,
            "preferred_username": grant.username,
            "realm": grant.realm,
            "scope": grant.scope,
            "roles": parse_scope(grant.scope).roles,
        }
        email = grant.username if is_in_main and "@" in grant.username else ""
        known = {"name": user.name if user else "", "email": email}
        return render_json(claims | {claim: value for claim, value in known.items() if value})
