"""GET /metrics, for Prometheus on this machine; to everybody else there is nothing here.

Clauses: none of the standards; SPEC is silent.
"""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service import metrics
from service.endpoints.addresses import is_from_this_machine


class MetricsEndpoint:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Strangers are not even told which methods there are."""
        if not is_from_this_machine(scope):
            raise HTTPException(404)
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        # Reading the files of many workers takes some milliseconds, which other requests need not wait for.
        metrics.tell_counts()
        text = await asyncio.to_thread(metrics.render)
        response = Response(text, headers={"Content-Type": metrics.CONTENT_TYPE, "Cache-Control": "no-store"})
        await response(scope, receive, send)
