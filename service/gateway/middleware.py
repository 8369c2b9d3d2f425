"""A plain ASGI middleware that refuses every request without a live access token.

Clauses: RFC 6750 §2.1, §3, §3.1, RFC 9728 §5.1, SPEC §4.5
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from ..protocol.bearer import parse_bearer
from ..protocol.errors import BearerMissing, ErrorResponse, OAuthError, render_refusal
from .bearer import parse_required_scope, require_grant
from .lookup import BearerLookup
from .resource_metadata import parse_address
from .stream import POLICY_VIOLATION, Receive, Send, Stream

# The types of ASGI, which those of every framework fit. In ASGI `scope` is a connection, not an OAuth scope.
ASGIScope = MutableMapping[str, Any]
ASGIApp = Callable[[ASGIScope, Receive, Send], Awaitable[None]]

DENIAL: Final = "websocket.http.response"


class BearerMiddleware:
    """An ASGI middleware that forwards only requests and websockets with a live token that has the required scope.

    At the end of its token a stream ends, and a websocket is closed. Other responses are never cut. Streams have the
    content type of an event stream, or one in `stream_types` of the lookup.

    The app finds the AccessGrant in `scope["state"]["grant"]`. The parameter `scope` holds the items that the token
    must have, separated by spaces. `resource_metadata` is the URL of the API's protected resource metadata, which each
    challenge then names. Raises ValueError if no token can have the items, or if the URL is malformed.
    """

    def __init__(self, app: ASGIApp, lookup: BearerLookup, *, scope: str = "", resource_metadata: str = "") -> None:
        self.app = app
        self.lookup = lookup
        self.required_scope = parse_required_scope(scope)
        self.resource_metadata = resource_metadata and parse_address(resource_metadata)

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] not in ("http", "websocket"):
            raise ValueError(f"cannot authenticate connections of the type {scope['type']!r}")
        authorization = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
        try:
            grant = await require_grant(self.lookup, authorization, self.required_scope)
        except (BearerMissing, OAuthError) as error:
            await _refuse(scope, send, render_refusal(error, self.resource_metadata))
            return
        state = {**scope.get("state", {}), "grant": grant}
        is_websocket = scope["type"] == "websocket"
        stream = Stream(self.lookup, parse_bearer(authorization), receive, send, is_websocket=is_websocket)
        async with stream.running():
            await self.app({**scope, "state": state}, stream.receive if is_websocket else receive, stream.send)


async def _refuse(scope: ASGIScope, send: Send, refusal: ErrorResponse) -> None:
    """Refuse a request, or a websocket before it is accepted.

    A websocket gets an HTTP response if the server can send one. Otherwise it is closed.
    """
    if scope["type"] == "http":
        await _answer("http.response", send, refusal)
    elif DENIAL in (scope.get("extensions") or {}):
        await _answer(DENIAL, send, refusal)
    else:
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})


async def _answer(kind: str, send: Send, refusal: ErrorResponse) -> None:
    headers = refusal.headers | {"Content-Length": str(len(refusal.body))}
    raw_headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": f"{kind}.start", "status": refusal.status, "headers": raw_headers})
    await send({"type": f"{kind}.body", "body": refusal.body})
