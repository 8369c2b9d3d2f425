"""CORS for browser applications: pages of the registered web origins may call, without credentials."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.protocol.token_response import NO_STORE_HEADERS
from service.protocol.uri import free_loopback_port
from service.redis_client.deadline import StoreUnavailable
from service.registry.cache import OriginCache
from service.web.request.reading import get_headers

_MAX_ORIGIN_CHARACTERS: Final = 300
_PREFLIGHT_HEADERS: Final = {"Access-Control-Max-Age": "600", "Vary": "Origin"} | NO_STORE_HEADERS
_HEADER_NAMES: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}")
_VARY: Final = (b"vary", b"Origin")
_EXPOSED: Final = (b"access-control-expose-headers", b"Retry-After, WWW-Authenticate")


class CrossOrigin:
    """Middleware that answers preflight requests, and lets registered origins read responses.

    `methods` maps each path that allows CORS to the methods that may be used there. Only a response that a cache might
    keep for another caller needs `Vary`, so a POST without an origin is passed on unchanged.
    """

    def __init__(self, app: ASGIApp, origins: OriginCache, methods: Mapping[str, str]) -> None:
        self._app = app
        self._origins = origins
        self._methods = methods

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["path"] in self._methods and (scope["method"] != "POST" or b"origin" in get_headers(scope)):
            return self._answer_origin(scope, receive, send)
        return self._app(scope, receive, send)

    async def _answer_origin(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = get_headers(scope)
        origin = headers.get(b"origin", b"").decode("latin-1")
        allowed = origin if 0 < len(origin) <= _MAX_ORIGIN_CHARACTERS and await self._is_registered(origin) else ""
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            asked = headers.get(b"access-control-request-headers", b"").decode("latin-1")
            await _answer_preflight(self._methods[scope["path"]], allowed, asked)(scope, receive, send)
        else:
            await self._app(scope, receive, _marked(send, allowed))

    async def _is_registered(self, origin: str) -> bool:
        """Return True if the origin is registered, or False during an outage.

        The response itself reports the outage. Access of a page to that response matters less.
        """
        try:
            any_port = free_loopback_port(origin)
            return await self._origins.find(origin) or (any_port is not None and await self._origins.find(any_port))
        except StoreUnavailable:
            return False


def _answer_preflight(methods: str, allowed: str, asked: str) -> Response:
    """Allow every header that a registered origin asks for: libraries add headers of their own, such as `traceparent`.

    They are named one by one, because `*` does not include Authorization.
    """
    headers = {"Access-Control-Allow-Methods": methods} | _PREFLIGHT_HEADERS
    if allowed:
        headers["Access-Control-Allow-Origin"] = allowed
    if allowed and _HEADER_NAMES.fullmatch(asked):
        headers["Access-Control-Allow-Headers"] = asked
    return Response(status_code=204, headers=headers)


def _marked(send: Send, allowed: str) -> Send:
    marks = [_VARY, (b"access-control-allow-origin", allowed.encode()), _EXPOSED] if allowed else [_VARY]

    def send_marked(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *marks]
        return send(message)

    return send_marked
