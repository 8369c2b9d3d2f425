"""POST /oauth2/v1/token, which authenticates the client and passes the request to the grant that it names.

The steps that all grants share follow below.

Clauses: RFC 6749 §3.2, §5.1, §5.2, SPEC §2.1, §4.2, §6
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol

from starlette.requests import Request
from starlette.responses import Response

from service.crypto.keyring import Keyring, RefreshToken
from service.protocol.client import check_grant_type
from service.protocol.errors import UnsupportedGrantType
from service.protocol.parameters import TOKEN_PARAMETERS, Form, require
from service.protocol.scope import parse_realm
from service.protocol.token_form import RandomToken
from service.protocol.token_response import TokenResponse
from service.web.request.client_authentication import AuthenticatedClient, ClientAuthenticator
from service.web.request.reading import read_form
from service.web.request.security_events import record_request_event
from service.web.request.state import GRANT
from service.web.responses import render_json


class Grant(Protocol):
    """A grant of the token endpoint."""

    grant_type: ClassVar[str]
    required: ClassVar[tuple[str, ...]]
    """The parameters that a request must have in addition to grant_type."""

    async def issue(self, request: Request, form: Form, caller: AuthenticatedClient) -> TokenResponse:
        """Issue tokens, or raise an OAuthError."""


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


def record_issue(
    request: Request,
    grant_type: str,
    caller: AuthenticatedClient,
    refresh_token: RefreshToken,
    username: str,
    scope: str,
) -> None:
    record_request_event(
        request,
        "tokens_issued",
        client_id=caller.client.client_id,
        username=username,
        realm=parse_realm(scope),
        family=refresh_token.family_digest,
        scope=scope,
        grant_type=grant_type,
    )


def make_token_response(
    keyring: Keyring, access_token: RandomToken, refresh_token: RefreshToken, lives_ms: int, scope: str
) -> TokenResponse:
    return TokenResponse(
        access_token=access_token.text,
        expires_in=lives_ms // 1000,
        refresh_token=keyring.sign_refresh_token(refresh_token),
        scope=scope,
    )
