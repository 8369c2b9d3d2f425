"""Bearer tokens for Starlette's AuthenticationMiddleware: anonymous requests pass, and handlers are guarded one by one.

Clauses: RFC 6750 §2.1, §3, §3.1, SPEC §4.5
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError, BaseUser
from starlette.requests import HTTPConnection
from starlette.responses import Response

from ..protocol.bearer import AccessGrant, check_scope
from ..protocol.errors import BearerMissing, OAuthError, render_refusal
from .bearer import parse_required_scope, require_grant
from .lookup import BearerLookup

Parameters = ParamSpec("Parameters")


class BearerUser(BaseUser):
    """The user of a live access token. `grant` holds all that is known of the token."""

    def __init__(self, grant: AccessGrant) -> None:
        self.grant = grant

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def display_name(self) -> str:
        return self.grant.username

    @property
    def identity(self) -> str:
        return self.grant.subject


class BearerRefused(AuthenticationError):
    """A presented token is not valid, or the token could not be checked. `error` holds the reason."""

    def __init__(self, error: OAuthError) -> None:
        super().__init__(error.description)
        self.error = error


class BearerBackend(AuthenticationBackend):
    """An authentication backend. A connection without a bearer token is anonymous; a presented token must be valid.

    The backend needs `on_error=answer_refusal`.
    """

    def __init__(self, lookup: BearerLookup) -> None:
        self.lookup = lookup

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        try:
            grant = await require_grant(self.lookup, conn.headers.getlist("authorization"))
        except BearerMissing:
            return None
        except OAuthError as error:
            raise BearerRefused(error) from error
        return AuthCredentials(["authenticated", *grant.scope.split(" ")]), BearerUser(grant)


def answer_refusal(conn: HTTPConnection, error: AuthenticationError) -> Response:
    """Return the response to a refused token. Pass it as `AuthenticationMiddleware(..., on_error=answer_refusal)`."""
    assert isinstance(error, BearerRefused)
    return _answer(error.error)


def requires_scope(scope: str = "") -> Callable[[Callable[Parameters, Any]], Callable[Parameters, Any]]:
    """Guard a handler, or a method of an HTTPEndpoint, that has a parameter `request`.

    Unlike Starlette's `requires`, the guard answers with a challenge. An anonymous request gets 401. A token without
    these items gets 403 insufficient_scope. If no items are given, every live token passes. Raises ValueError if no
    token can have the items, and TypeError if the handler has no parameter `request`.

    Clauses: RFC 6750 §3.1
    """
    required = parse_required_scope(scope)

    def decorate(handler: Callable[Parameters, Any]) -> Callable[Parameters, Any]:
        signature = inspect.signature(handler)
        if "request" not in signature.parameters:
            raise TypeError(f"{handler!r} has no parameter `request`, so requires_scope cannot guard it")

        def find_refusal(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Response | None:
            return _find_refusal(signature.bind(*args, **kwargs).arguments["request"], required)

        async def guard(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Any:
            return find_refusal(*args, **kwargs) or await handler(*args, **kwargs)

        def guard_sync(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Any:
            return find_refusal(*args, **kwargs) or handler(*args, **kwargs)

        return functools.wraps(handler)(guard if inspect.iscoroutinefunction(handler) else guard_sync)

    return decorate


def _find_refusal(conn: HTTPConnection, required: str) -> Response | None:
    if not isinstance(conn.user, BearerUser):
        return _answer(BearerMissing())
    try:
        check_scope(conn.user.grant, required)
    except OAuthError as error:
        return _answer(error)
    return None


def _answer(error: OAuthError | BearerMissing) -> Response:
    refusal = render_refusal(error)
    return Response(refusal.body, refusal.status, refusal.headers)
