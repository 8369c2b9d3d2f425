"""The context of all work on a request: one time budget for Redis, the stream of its security events, its trace.

Clauses: W3C Trace Context §3.2 (the header traceparent)
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from service.observability.audit import use_audit_stream
from service.observability.audit_stream import AuditStream
from service.observability.traces import use_trace_id
from service.protocol.trace_context import parse_traceparent
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
            # A request without a trace clears the context variable. The task of a pipelined request inherits the
            # context of the request before it.
            use_trace_id(_find_trace_id(scope["headers"]))
        use_audit_stream(self._audit_stream)
        await self._app(scope, receive, send)


def _find_trace_id(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the trace that the headers name, or None without a valid `traceparent` or with several."""
    found: bytes | None = None
    for name, value in headers:
        if name == b"traceparent":
            if found is not None:
                return None
            found = value
    return None if found is None else parse_traceparent(found)
