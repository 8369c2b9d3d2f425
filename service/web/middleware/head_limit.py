"""What stands before the body of a request, the address and the headers: bounded, since the server bounds it not.

Clauses: none of the standards; SPEC is silent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.protocol.errors import InvalidToken, OAuthError
from service.protocol.http_errors import HeadTooLarge
from service.web.request.state import HEAD_BYTES
from service.web.responses import answer_oauth_error

MAX_HEAD_BYTES: Final = 64 * 1024


class HeadLimit:
    """Refuses before anything is parsed: twenty megabytes of cookies would stop a worker for seconds.

    At `verify_paths` it does so by 401, since a proxy that asks there understands no 431.
    """

    def __init__(self, app: ASGIApp, verify_paths: Collection[str]) -> None:
        self._app = app
        self._verify_paths = verify_paths

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and _is_too_long(scope):
            response = answer_oauth_error(Request(scope), self._refuse(scope["path"]))
            return response(scope, receive, send)
        return self._app(scope, receive, send)

    def _refuse(self, path: str) -> OAuthError:
        return InvalidToken("head_too_large") if path in self._verify_paths else HeadTooLarge("head_too_large")


def _is_too_long(scope: Scope) -> bool:
    return HEAD_BYTES.get(scope, MAX_HEAD_BYTES + 1) > MAX_HEAD_BYTES and _measure(scope) > MAX_HEAD_BYTES


def _measure(scope: Scope) -> int:
    size = len(scope["path"]) + len(scope["query_string"])
    for name, value in scope["headers"]:
        size += len(name) + len(value)
    return size
