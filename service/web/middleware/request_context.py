"""What all work on a request shares: one time budget for Redis, and the trail of its security events."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from service.observability.audit import start_trail
from service.observability.audit_stream import EventTrail
from service.redis_client.deadline import start_budget


class RequestContext:
    """Sets the context variables of a request before anything else sees it.

    It is the outermost middleware: uvicorn looks for a coroutine function there.
    """

    def __init__(self, app: ASGIApp, trail: EventTrail) -> None:
        self._app = app
        self._trail = trail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            start_budget()
        start_trail(self._trail)
        await self._app(scope, receive, send)
