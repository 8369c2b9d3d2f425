"""The replacement of a peer's address by the one that a trusted proxy forwards.

Clauses: RFC 6749 §2.3.1 (throttles count by address)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.config.parsers import Network
from service.web.request.client_address import UNREAD_HEADERS, forwards_addresses, get_peer, parse_hop
from service.web.request.state import PEER_IS_TRUSTED

UNKNOWN: Final = "unknown"
"""The address of a caller that a trusted proxy does not name. All such callers share one counter."""

WARNING_SECONDS: Final = 3600.0

_MAX_HOPS: Final = 32

_UNLISTED_PROXY: Final = (
    "%s sends X-Forwarded-For, Forwarded or X-Real-IP, and TOKEN_SERVICE_TRUSTED_PROXIES does not name it. If it is "
    "your proxy, add it: until then all its callers share one address and its limits. If it is not, a caller sent the "
    "header; ignore this"
)
_UNNAMED_CALLER: Final = (
    "the trusted proxy %s names its caller by no address in X-Forwarded-For: all callers that it does not name there "
    "share one limit"
)

log = logging.getLogger("service.addresses")


class TrustedProxies:
    """Middleware that replaces the peer's address and the scheme by those that a trusted proxy forwards.

    Forwarded values of other peers are ignored. A peer that forwards addresses and is not trusted is a proxy missing
    from the settings, or a caller that imitates a proxy. The log warns of such a peer, and of a trusted proxy that
    does not name its caller, each at most once an hour.
    """

    def __init__(self, app: ASGIApp, networks: Sequence[Network], clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._networks = networks
        self._clock = clock
        self._warned_at: dict[str, float] = {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            if self._networks and self._is_trusted(get_peer(scope)):
                self._apply_forwarded(scope)
            elif forwards_addresses(scope):
                self._warn(_UNLISTED_PROXY, get_peer(scope))
        return self._app(scope, receive, send)

    def _apply_forwarded(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        scope[PEER_IS_TRUSTED] = True
        scope["client"] = (self._get_client(scope, headers.getlist("x-forwarded-for")), 0)
        forwarded_scheme = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
        if forwarded_scheme in ("http", "https"):
            scope["scheme"] = forwarded_scheme

    def _get_client(self, scope: Scope, forwarded_for: Sequence[str]) -> str:
        """Return the rightmost hop that is not trusted, because any caller may have forged the hops left of it.

        Returns UNKNOWN if that hop is not an address, or if only `Forwarded` or `X-Real-IP` name a caller, since these
        headers are not read. Returns the peer if nothing is forwarded.
        """
        client = peer = get_peer(scope)
        hops = ",".join(forwarded_for).rsplit(",", _MAX_HOPS)[-_MAX_HOPS:]
        if not any(hop.strip() for hop in hops):
            if not any(name in UNREAD_HEADERS for name, _ in scope["headers"]):
                return peer
            hops = [""]
        for hop in reversed(hops):
            address = parse_hop(hop)
            if address is None:
                self._warn(_UNNAMED_CALLER, peer)
                return UNKNOWN
            client = str(address)
            if not self._is_trusted(client):
                break
        return client

    def _warn(self, message: str, peer: str) -> None:
        if self._clock() >= self._warned_at.get(message, -WARNING_SECONDS) + WARNING_SECONDS:
            self._warned_at[message] = self._clock()
            log.warning(message, peer)

    def _is_trusted(self, text: str) -> bool:
        address = parse_hop(text)
        return address is not None and any(address in network for network in self._networks)
