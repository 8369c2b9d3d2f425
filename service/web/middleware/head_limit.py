"""A limit for a complete request head (path, query and headers), which the server does not limit."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.protocol.errors import InvalidRequest, InvalidToken, OAuthError
from service.web.responses import answer_oauth_error

MAX_HEAD_BYTES: Final = 64 * 1024


class HeadLimit:
    """Middleware that refuses a large head before it is parsed: 20 MB of cookies would block a worker for seconds.

    The status is 431. At `verify_paths` it is 401, because a proxy that calls these paths does not understand 431.
    """

    def __init__(self, app: ASGIApp, verify_paths: Collection[str]) -> None:
        self._app = app
        self._verify_paths = verify_paths

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and _measure(scope) > MAX_HEAD_BYTES:
            response = answer_oauth_error(Request(scope), self._refuse(scope["path"]))
            return response(scope, receive, send)
        return self._app(scope, receive, send)

    def _refuse(self, path: str) -> OAuthError:
        if path in self._verify_paths:
            return InvalidToken("head_too_large")
        return InvalidRequest("head_too_large", status=431)


def _measure(scope: Scope) -> int:
    size = len(scope["path"]) + len(scope["query_string"])
    return size + sum(len(name) + len(value) for name, value in scope["headers"])
