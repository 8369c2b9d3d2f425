"""A dependency of FastAPI that requires a live access token, and describes how to get one in the OpenAPI document.

The module does not postpone the evaluation of annotations: FastAPI reads those of `BearerGuard.__call__`, and cannot
resolve postponed ones of an object.

Clauses: RFC 6750 §2.1, §3, §3.1, RFC 9728 §5.1, SPEC §4.5
"""

from typing import Any

from fastapi import HTTPException, Response, Security
from fastapi.openapi.models import OAuth2, OAuthFlowAuthorizationCode, OAuthFlowPassword, OAuthFlows
from fastapi.requests import HTTPConnection
from fastapi.security import SecurityScopes
from fastapi.security.base import SecurityBase

from ..protocol.bearer import AccessGrant
from ..protocol.errors import AUTHENTICATION_REALM, BearerMissing, ErrorResponse, OAuthError, render_refusal
from ..protocol.metadata import make_metadata
from ..protocol.scope import REALMS
from .bearer import parse_required_scope, require_grant
from .lookup import BearerLookup
from .resource_metadata import parse_address


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
        """Return the grant of the token. Raises TokenRefused."""
        try:
            return await require_grant(self.lookup, connection.headers.getlist("authorization"), scopes.scope_str)
        except (BearerMissing, OAuthError) as error:
            raise TokenRefused(render_refusal(error, self.resource_metadata)) from error


def _describe_scheme(base_url: str, web_url: str) -> OAuth2:
    metadata = make_metadata(base_url, web_url, REALMS, ())  # the languages of pages do not matter here
    token_url = metadata.token_endpoint
    scopes = {item: item.replace(":", " ") for item in metadata.scopes_supported}
    code = OAuthFlowAuthorizationCode(
        authorizationUrl=metadata.authorization_endpoint, tokenUrl=token_url, refreshUrl=token_url, scopes=scopes
    )
    password = OAuthFlowPassword(tokenUrl=token_url, refreshUrl=token_url, scopes=scopes)
    return OAuth2(flows=OAuthFlows(authorizationCode=code, password=password))
