"""What all work on a request shares: one time budget for Redis, and the trail of its security events."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from service.observability.audit import use_audit_stream
from service.observability.audit_stream import AuditStream
from service.redis_client.deadline import start_budget


class RequestContext:
    """Sets the context variables of a request before anything else sees it.

    It is the outermost middleware: uvicorn looks for a coroutine function there.
    """

    def __init__(self, app: ASGIApp, audit_stream: AuditStream) -> None:
        self._app = app
        self._audit_stream = audit_stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            start_budget()
        use_audit_stream(self._audit_stream)
        await self._app(scope, receive, send)
