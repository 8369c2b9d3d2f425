"""Bearer tokens for Starlette's own AuthenticationMiddleware: open to the anonymous, closed handler by handler.

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
from ..protocol.error_response import render_refusal
from ..protocol.errors import BearerMissing, OAuthError
from .bearer import parse_required_scope, require_grant
from .lookup import BearerLookup

Parameters = ParamSpec("Parameters")


class BearerUser(BaseUser):
    """Whom a live access token stands for; `grant` has everything that is known of it."""

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
    """A bearer was sent and is not good, or nobody can tell; `error` says why."""

    def __init__(self, error: OAuthError) -> None:
        super().__init__(error.description)
        self.error = error


class BearerBackend(AuthenticationBackend):
    """Without a bearer a connection is anonymous; with one it must be good. Needs `on_error=answer_refusal`."""

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
    """For `AuthenticationMiddleware(..., on_error=answer_refusal)`."""
    assert isinstance(error, BearerRefused)
    return _answer(error.error)


def requires_scope(scope: str = "") -> Callable[[Callable[Parameters, Any]], Callable[Parameters, Any]]:
    """Guards a handler, or a method of an HTTPEndpoint, that has a parameter `request`.

    Unlike Starlette's `requires` it answers with a challenge: 401 for the anonymous, 403 insufficient_scope for a token
    without these items. Without items every live token will do. Raises ValueError where no token can have them.

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
