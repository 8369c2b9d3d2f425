"""GET /metrics for Prometheus, on the main port or at a separate address."""

from __future__ import annotations

import asyncio

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from service.observability import metrics
from service.web.request.client_address import is_from_this_machine, parse_hop
from service.web.request.reading import list_header_values


class MetricsEndpoint:
    """The endpoint of the metrics: for callers on this machine, or with `is_for_all` for those elsewhere, too."""

    def __init__(self, base_host: str, *, is_for_all: bool = False) -> None:
        self._base_host = base_host
        self._is_for_all = is_for_all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the metrics.

        A caller that may not read them gets 404 with every method, so that the allowed methods are not revealed either.
        """
        is_permitted = self._is_meant(scope) if is_from_this_machine(scope) else self._is_for_all
        is_escaped = self._is_for_all and b"%" in scope["raw_path"]  # RequestContext is on the main port only
        if is_escaped or not is_permitted:
            raise HTTPException(404)
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        # A thread reads the files of all workers: this takes some milliseconds, and must not delay other requests.
        if not self._is_for_all:  # then this is the thread that counts
            metrics.flush_counts()
        text = await asyncio.to_thread(metrics.render)
        response = Response(text, headers={"Content-Type": metrics.CONTENT_TYPE, "Cache-Control": "no-store"})
        await response(scope, receive, send)

    def _is_meant(self, scope: Scope) -> bool:
        """Return True if the peer uses a unix socket, or Host is an address, `localhost` or the host of the base URL.

        This defeats DNS rebinding: a page in a browser on this machine has a host name that its DNS server resolves to
        127.0.0.1, and could read the metrics under this name. No page can reach a unix socket.
        """
        if not scope.get("client"):
            return True
        host = next(iter(list_header_values(scope, b"host")), "")
        return parse_hop(host) is not None or host.partition(":")[0].lower() in ("localhost", self._base_host)


def build_metrics_app(base_host: str) -> Starlette:
    """Return the application of a separate address, which serves the metrics to every caller."""
    app = Starlette(routes=[Route("/metrics", MetricsEndpoint(base_host, is_for_all=True))])
    app.router.redirect_slashes = False
    return app
