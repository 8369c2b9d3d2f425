"""The steps that all grants share: the token response and the security event.

Clauses: RFC 6749 §5.1, SPEC §2.1, §6
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from starlette.requests import Request

from service.crypto.keyring import Keyring, RefreshToken
from service.protocol.parameters import Form
from service.protocol.scope import parse_realm
from service.protocol.token_form import RandomToken
from service.protocol.token_response import TokenResponse
from service.web.request.client_authentication import AuthenticatedClient
from service.web.request.security_events import record_request_event


class Grant(Protocol):
    """A grant of the token endpoint."""

    grant_type: ClassVar[str]
    required: ClassVar[tuple[str, ...]]
    """The parameters that a request must have in addition to grant_type."""

    async def issue(self, request: Request, form: Form, caller: AuthenticatedClient) -> TokenResponse:
        """Issue tokens, or raise an OAuthError."""


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
