"""POST /oauth2/v1/token, which authenticates the client and passes the request to the grant that it names.

Clauses: RFC 6749 §3.2, §5.1, §5.2, SPEC §4.2
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response

from service.protocol.client import check_grant_type
from service.protocol.errors import UnsupportedGrantType
from service.protocol.parameters import TOKEN_PARAMETERS, require
from service.web.api.grants.issue import Grant
from service.web.request.client_authentication import ClientAuthenticator
from service.web.request.form import read_form
from service.web.request.state import GRANT
from service.web.responses import render_json


class TokenEndpoint:
    def __init__(self, authenticator: ClientAuthenticator, grants: Iterable[Grant]) -> None:
        self._authenticator = authenticator
        self._grants = {grant.grant_type: grant for grant in grants}

    async def post(self, request: Request) -> Response:
        """Issue tokens. The checks run in the order of the lines below, which docs/errors.md documents."""
        form = await read_form(request, TOKEN_PARAMETERS)
        if form.get("grant_type") in self._grants:
            request.scope[GRANT] = form["grant_type"]
        caller = await self._authenticator.authenticate(request, form)
        require(form, "grant_type")
        grant = self._grants.get(form["grant_type"])
        if grant is None:
            raise UnsupportedGrantType("grant_type_unknown")
        require(form, *grant.required)
        check_grant_type(caller.client, grant.grant_type)
        return render_json(await grant.issue(request, form, caller))
