"""The address that a request comes from: the peer's, or the one that a trusted proxy forwards.

Clauses: RFC 6749 §2.3.1 (throttles count by address)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.config.parsers import Network
from service.store.attempts import Prefix, Prefixes
from service.web.request.reading import get_headers, list_header_values
from service.web.request.state import PEER_IS_TRUSTED

LOCAL_PEER: Final = "127.0.0.1"
"""The address of a peer without one: a peer that connects to a unix socket is on this machine."""

UNKNOWN: Final = "unknown"
"""The address of a caller that a trusted proxy does not name. All such callers share one counter."""

WARNING_SECONDS: Final = 3600.0

_MAX_HOPS: Final = 32

_UNLISTED_PROXY: Final = (
    "%s sends X-Forwarded-For, Forwarded or X-Real-IP, but is not in TOKEN_SERVICE_TRUSTED_PROXIES. If it is your "
    "proxy, add it, because all its callers share one IP address and its limits until then. Otherwise, ignore this"
)
_HIDDEN_CALLERS: Final = (
    "the trusted proxy %s reports its caller as %s, which is a trusted proxy or not an IP address, so all such "
    "callers share one limit. Check that the load balancer keeps addresses, and narrow TOKEN_SERVICE_TRUSTED_PROXIES"
)

_UNREAD_HEADERS: Final = frozenset({b"forwarded", b"x-real-ip"})
_FORWARDING_HEADERS: Final = _UNREAD_HEADERS | {b"x-forwarded-for"}
_IPV6_FACTORS: Final = ((64, 1), (56, 4), (48, 16))
"""The prefix lengths under which an IPv6 address is counted, and the factor of the limit at each length."""

log = logging.getLogger("service.client_address")


class TrustedProxies:
    """Middleware that replaces the peer's address and the scheme by those that a trusted proxy forwards.

    Forwarded values of other peers are ignored. A peer that forwards addresses and is not trusted is a proxy missing
    from the settings, or a caller that imitates a proxy. The log warns of such a peer, and of a trusted proxy
    that names no caller or only trusted ones, each at most once an hour.
    """

    def __init__(self, app: ASGIApp, networks: Sequence[Network], clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._networks = networks
        self._clock = clock
        self._warned_at: dict[str, float] = {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if self._networks and self._is_trusted(get_peer(scope)):
            self._apply_forwarded(scope)
        elif _forwards_addresses(scope):
            self._warn(_UNLISTED_PROXY, get_peer(scope))
        return self._app(scope, receive, send)

    def _apply_forwarded(self, scope: Scope) -> None:
        scope[PEER_IS_TRUSTED] = True
        scope["client"] = (self._get_client(scope, list_header_values(scope, b"x-forwarded-for")), 0)
        forwarded_scheme = get_headers(scope).get(b"x-forwarded-proto", b"").rpartition(b",")[2].strip().lower()
        if forwarded_scheme in (b"http", b"https"):
            scope["scheme"] = forwarded_scheme.decode()

    def _get_client(self, scope: Scope, forwarded_for: Sequence[str]) -> str:
        """Return the rightmost hop that is not trusted, because any caller may have forged the hops left of it.

        Returns UNKNOWN if that hop is not an address, or if only `Forwarded` or `X-Real-IP` name a caller, since these
        headers are not read. Returns the peer if nothing is forwarded.
        """
        client = peer = get_peer(scope)
        hops = ",".join(forwarded_for).rsplit(",", _MAX_HOPS)[-_MAX_HOPS:]
        if not any(hop.strip() for hop in hops):
            if _UNREAD_HEADERS.isdisjoint(get_headers(scope)):
                return peer
            hops = [""]
        for hop in reversed(hops):
            address = parse_hop(hop)
            client = str(address or UNKNOWN)
            if address is None:
                break
            if not self._is_trusted(client):
                return client
        self._warn(_HIDDEN_CALLERS, peer, client)
        return client

    def _warn(self, message: str, *addresses: str) -> None:
        """Log the warning, unless it was logged within the hour."""
        if self._clock() >= self._warned_at.get(message, -WARNING_SECONDS) + WARNING_SECONDS:
            self._warned_at[message] = self._clock()
            log.warning(message, *addresses)

    def _is_trusted(self, text: str) -> bool:
        address = parse_hop(text)
        return address is not None and any(address in network for network in self._networks)


def get_prefixes(request: Request) -> Prefixes:
    """Return the networks under which the caller's address is counted by rate limits."""
    return _make_prefixes(get_peer(request.scope))


def is_from_this_machine(scope: Scope) -> bool:
    """Return True if the caller came through loopback or a unix socket.

    Behind a trusted proxy, the forwarded address decides. A peer that forwards addresses and is not trusted may be a
    proxy on this machine, so its callers may be anywhere.
    """
    if not scope.get(PEER_IS_TRUSTED, False) and _forwards_addresses(scope):
        return False
    address = parse_hop(get_peer(scope))
    return address is not None and address.is_loopback


@lru_cache(10_000)
def _make_prefixes(text: str) -> Prefixes:
    """Return the networks of an address: one network for IPv4, three for IPv6."""
    address = parse_hop(text)
    if isinstance(address, IPv6Address):
        return tuple(
            Prefix(str(ip_network((address, length), strict=False)), factor) for length, factor in _IPV6_FACTORS
        )
    return (Prefix(text if address is None else str(address), 1),)


def _forwards_addresses(scope: Scope) -> bool:
    return not _FORWARDING_HEADERS.isdisjoint(get_headers(scope))


def get_peer(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else LOCAL_PEER


def parse_hop(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address as proxies write it, with or without a port and brackets, or None if it is malformed.

    An IPv4 address mapped into IPv6 counts as IPv4.
    """
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
