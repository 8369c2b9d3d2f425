"""The context of all work on a request: one time budget for Redis, the stream of its security events, its trace."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from service.observability.audit import use_audit_stream
from service.observability.audit_stream import AuditStream
from service.observability.logs import use_trace
from service.redis_client.deadline import start_budget


class RequestContext:
    """Middleware that sets the context variables of a request, before all other middleware.

    Because it is the outermost middleware, `__call__` must be a coroutine function: uvicorn detects ASGI 3 by that.
    """

    def __init__(self, app: ASGIApp, audit_stream: AuditStream) -> None:
        self._app = app
        self._audit_stream = audit_stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            start_budget()
            use_trace(scope["headers"])
        use_audit_stream(self._audit_stream)
        await self._app(scope, receive, send)
