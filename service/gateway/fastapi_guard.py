"""A dependency of FastAPI that requires a live access token, and describes how to get one in the OpenAPI document.

The module does not postpone the evaluation of annotations: FastAPI reads those of `BearerGuard.__call__`, and cannot
resolve postponed ones of an object.

Clauses: RFC 6750 §2.1, §3, §3.1, RFC 9728 §5.1, SPEC §4.5
"""

import sys
from types import FrameType
from typing import Any

from fastapi import HTTPException, Response, Security, WebSocket
from fastapi.openapi.models import OAuth2, OAuthFlowAuthorizationCode, OAuthFlowPassword, OAuthFlows
from fastapi.requests import HTTPConnection
from fastapi.security import SecurityScopes
from fastapi.security.base import SecurityBase

from ..protocol.bearer import AccessGrant, parse_bearer
from ..protocol.errors import AUTHENTICATION_REALM, BearerMissing, ErrorResponse, OAuthError, render_refusal
from ..protocol.metadata import make_metadata
from ..protocol.scope import REALMS
from .bearer import parse_required_scope, require_grant
from .lookup import BearerLookup
from .middleware import ASGIScope
from .resource_metadata import parse_address
from .stream import Receive, Send, Stream, is_stream


class TokenRefused(HTTPException):
    """A request without a live access token that has the required scope, or whose token could not be checked.

    FastAPI answers with the status and the challenge, and with a body of its own. With `answer_token_refused` as the
    handler of this exception, the body is the one that the token service sends.
    """

    def __init__(self, refusal: ErrorResponse) -> None:
        super().__init__(refusal.status, headers=refusal.headers)
        self.refusal = refusal


async def answer_token_refused(_: HTTPConnection, refused: TokenRefused) -> Response:
    """Return the response. Pass it as `FastAPI(exception_handlers={TokenRefused: answer_token_refused})`."""
    return Response(refused.refusal.body, refused.refusal.status, refused.refusal.headers)


class BearerGuard(SecurityBase):
    """A security dependency of FastAPI. The value is the AccessGrant of the request's or websocket's token.

    `base_url` is the public address of the token service, TOKEN_SERVICE_BASE_URL, and `web_url` that of its pages, if
    it differs. They are used only in the OpenAPI document. `resource_metadata` is the URL of the API's protected
    resource metadata, which each challenge then names. Raises ValueError if that URL is malformed.
    """

    def __init__(self, lookup: BearerLookup, base_url: str, *, web_url: str = "", resource_metadata: str = "") -> None:
        self.lookup = lookup
        self.resource_metadata = resource_metadata and parse_address(resource_metadata)
        self.scheme_name = AUTHENTICATION_REALM
        web_url = web_url or base_url
        self.model = _describe_scheme(base_url.rstrip("/"), web_url.rstrip("/"))

    def requires(self, scope: str = "") -> Any:
        """Return the marker of a parameter, as in `Annotated[AccessGrant, guard.requires("role:partner")]`.

        A token without these items gets 403 insufficient_scope. If no items are given, every live token passes. Raises
        ValueError if no token can have the items.

        Clauses: RFC 6750 §3.1
        """
        return Security(self, scopes=parse_required_scope(scope).split())

    async def __call__(self, connection: HTTPConnection, scopes: SecurityScopes) -> AccessGrant:
        """Return the grant of the token. Raises TokenRefused.

        At the end of the token an event stream ends, and a websocket is closed.
        """
        authorization = connection.headers.getlist("authorization")
        try:
            grant = await require_grant(self.lookup, authorization, scopes.scope_str)
        except (BearerMissing, OAuthError) as error:
            raise TokenRefused(render_refusal(error, self.resource_metadata)) from error
        token = parse_bearer(authorization)
        if isinstance(connection, WebSocket):
            # The handler gets the same object, so it uses these functions, too.
            stream = Stream(self.lookup, token, connection._receive, connection._send, is_websocket=True)
            connection._receive, connection._send = stream.receive, stream.send
            await connection.scope["fastapi_inner_astack"].enter_async_context(stream.running())
        else:
            connection.scope["fastapi_function_astack"].callback(_end_with_token, self.lookup, token)
        return grant


def _end_with_token(lookup: BearerLookup, token: str) -> None:
    """Let the response end with the token, if it is a stream.

    FastAPI calls this after the handler has returned and before the response is sent. It gives the response to no
    dependency, so this looks among the variables of the function of FastAPI that called it.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals["__name__"] != "fastapi.routing":
        frame = frame.f_back
    for found in frame.f_locals.values() if frame is not None else ():
        if isinstance(found, Response) and is_stream(found.raw_headers, lookup.stream_types):
            _limit(found, lookup, token)


def _limit(response: Response, lookup: BearerLookup, token: str) -> None:
    """Let the response end with the token. Its class gets another `__call__`, by which any response is sent."""
    kind: type[Any] = type(response)

    async def send_limited(self: Response, scope: ASGIScope, receive: Receive, send: Send) -> None:
        stream = Stream(lookup, token, receive, send, is_websocket=False)
        async with stream.running():
            await kind.__call__(self, scope, receive, stream.send)

    response.__class__ = type(kind.__name__, (kind,), {"__call__": send_limited})


def _describe_scheme(base_url: str, web_url: str) -> OAuth2:
    metadata = make_metadata(base_url, web_url, REALMS, ())  # the languages of pages do not matter here
    token_url = metadata.token_endpoint
    scopes = {item: item.replace(":", " ") for item in metadata.scopes_supported}
    code = OAuthFlowAuthorizationCode(
        authorizationUrl=metadata.authorization_endpoint, tokenUrl=token_url, refreshUrl=token_url, scopes=scopes
    )
    password = OAuthFlowPassword(tokenUrl=token_url, refreshUrl=token_url, scopes=scopes)
    return OAuth2(flows=OAuthFlows(authorizationCode=code, password=password))
