"""A plain ASGI middleware that lets nobody through without a live access token.

Clauses: RFC 6750 §2.1, §3, §3.1, SPEC §4.5
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from ..protocol.error_response import ErrorResponse, render_refusal
from ..protocol.errors import BearerMissing, OAuthError
from .bearer import parse_required_scope, require_grant
from .lookup import BearerLookup

# The types of ASGI, where `scope` is a connection and no OAuth scope; those of every framework fit.
ASGIScope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[ASGIScope, Receive, Send], Awaitable[None]]

DENIAL: Final = "websocket.http.response"
POLICY_VIOLATION: Final = 1008


class BearerMiddleware:
    """Requests and websockets reach the app with their AccessGrant in `scope["state"]["grant"]`, or not at all.

    `scope` holds the items that the token must have, separated by spaces. Raises ValueError where no token can.
    """

    def __init__(self, app: ASGIApp, lookup: BearerLookup, *, scope: str = "") -> None:
        self.app = app
        self.lookup = lookup
        self.required_scope = parse_required_scope(scope)

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] not in ("http", "websocket"):
            raise ValueError(f"what may pass is not known for connections of the type {scope['type']!r}")
        authorization = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
        try:
            grant = await require_grant(self.lookup, authorization, self.required_scope)
        except (BearerMissing, OAuthError) as error:
            await _refuse(scope, send, render_refusal(error))
            return
        state = {**scope.get("state", {}), "grant": grant}
        await self.app({**scope, "state": state}, receive, send)


async def _refuse(scope: ASGIScope, send: Send, refusal: ErrorResponse) -> None:
    """A websocket is refused before it is accepted: by a real answer where the server can send one."""
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
