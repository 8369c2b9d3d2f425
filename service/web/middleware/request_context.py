"""The context of all work on a request, its path, and the limit of its head.

The context is one time budget for Redis, the stream of security events, and the trace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.observability.audit import use_audit_stream
from service.observability.audit_stream import AuditStream
from service.observability.logs import use_trace
from service.protocol.errors import InvalidRequest, InvalidToken
from service.redis_client.deadline import start_budget
from service.web.request.reading import list_header_values
from service.web.responses import answer_oauth_error

MAX_HEAD_BYTES: Final = 64 * 1024

_ESCAPE: Final = ord("%")


class RequestContext:
    """Middleware that sets the context variables of a request and its path as it was sent, before all other middleware.

    The server has decoded the path. Log, CORS and routes compare the same path as a proxy whose rule protects it:
    `/oauth2/v1/%75sers/x` is not `/oauth2/v1/users/x`. The prefix that `--root-path` adds is removed.

    Messages about the life of the process go to `lifespan`, so all other middleware gets requests only.

    Because it is the outermost middleware, `__call__` must be a coroutine function: uvicorn detects ASGI 3 by that.
    """

    def __init__(self, app: ASGIApp, lifespan: ASGIApp, audit_stream: AuditStream) -> None:
        self._app = app
        self._lifespan = lifespan
        self._audit_stream = audit_stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        use_audit_stream(self._audit_stream)
        if scope["type"] != "http":
            await self._lifespan(scope, receive, send)
            return
        start_budget()
        use_trace(list_header_values(scope, b"traceparent"))
        if _ESCAPE in scope["raw_path"] or scope["root_path"]:
            path = scope["raw_path"].decode("latin-1").removeprefix(scope["root_path"])
            scope.update(path=path, root_path="")
        await self._app(scope, receive, send)


class HeadLimit:
    """Middleware that refuses a large head (path, query and headers) before it is parsed.

    20 MB of cookies would block a worker for seconds.

    The status is 431. At `verify_paths` it is 401, because a proxy that calls these paths does not understand 431.
    """

    def __init__(self, app: ASGIApp, verify_paths: Collection[str]) -> None:
        self._app = app
        self._verify_paths = verify_paths

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        size = len(scope["path"]) + len(scope["query_string"])
        if size + sum([len(name) + len(value) for name, value in scope["headers"]]) > MAX_HEAD_BYTES:
            is_verify = scope["path"] in self._verify_paths
            refusal = InvalidToken("head_too_large") if is_verify else InvalidRequest("head_too_large", status=431)
            return answer_oauth_error(Request(scope), refusal)(scope, receive, send)
        return self._app(scope, receive, send)
