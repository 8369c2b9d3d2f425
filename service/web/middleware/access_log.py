"""The access log: one line per request with method, path, status, duration, address and the reason of a refusal.

If the request caused a security event, the line has the name, the level and the fields of the event. The query string
is never logged, because it may carry secrets, nor is a user name in the path, even if the address is wrong. The same
middleware counts the request for the metrics.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.observability.audit import audit_log, get_level
from service.observability.logs import EventLog, shorten
from service.observability.metrics import count_request
from service.web.request.client_address import get_peer
from service.web.request.state import CLIENT_ID, EVENT, GRANT, REASON

_PROBES = ("/healthz", "/readyz")
"""Paths of health probes, which come every few seconds and are logged at DEBUG.

A change of the result of a probe has a log line of its own.
"""

_QUIET_WHERE_USUAL = ("/oauth2/v1/verify", "/oauth2/v1/introspect", "/metrics")
"""Paths that gateways request at every call of every API, and the one that Prometheus requests every few seconds.

A success is logged at DEBUG and a refusal at INFO. A refusal by an outage is logged at DEBUG: an outage refuses every
request, and has lines of its own.
"""

_USER_NAME = re.compile(r"((?:^|/)(?:users(?:/|%(?:25)*2f)|(?=[^/]*(?:@|%(?:25)*40)))).*", re.DOTALL | re.IGNORECASE)
"""The rest of a path after `users/`, or from the first segment with an `@`. A user name may have slashes."""

MAX_PATH_LENGTH = 200

_log = EventLog("service.access")


class AccessLog:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        status = 500

        def send_noted(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            return send(message)

        try:
            await self._app(scope, receive, send_noted)
        finally:
            seconds = time.perf_counter() - started
            # A request without a route, or answered before its route was known, is counted as the endpoint `other`.
            route = scope.get("route")
            endpoint = "other" if route is None else route.name
            client_id = scope.get(CLIENT_ID, "")
            count_request(endpoint, scope.get(GRANT, "none"), status, scope.get(REASON), seconds, client_id)
            self._write(scope, status, seconds)

    def _write(self, scope: Scope, status: int, seconds: float) -> None:
        event, event_fields = scope.get(EVENT, ("", {}))
        path = scope["path"]
        if "route" not in scope or "username" in scope.get("path_params", ()):
            path = _USER_NAME.sub(r"\1{username}", path)
        log, level = (audit_log, get_level(event)) if event else (_log, _choose_level(scope, path, status))
        if not log.shows(level):
            return
        fields = {
            "method": scope["method"],
            "path": shorten(path, MAX_PATH_LENGTH),
            "status": status,
            "ms": round(seconds * 1000, 2),
            "address": get_peer(scope),
        }
        if REASON in scope:
            fields["reason"] = scope[REASON]
        log.write(level, event or "request", fields | event_fields)


def _choose_level(scope: Scope, path: str, status: int) -> int:
    is_usual = status == 200 or scope.get(REASON) == "store_unavailable"
    is_quiet = path.endswith(_PROBES) or (is_usual and path.endswith(_QUIET_WHERE_USUAL))
    return logging.DEBUG if is_quiet else logging.INFO
