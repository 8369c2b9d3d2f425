"""The address that a request comes from: the peer's, or the one that a trusted proxy forwards.

Clauses: RFC 6749 §2.3.1 (throttles count by address)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.scopes import LOCAL_PEER
from service.store.attempts import Prefix, Prefixes

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

UNKNOWN: Final = "unknown"
"""The address of a caller whom a trusted proxy does not name. All of them share one counter."""

BELIEVED: Final = "token_service.believed"
"""The key of a request's scope that says that its peer is a trusted proxy."""

WARNING_SECONDS: Final = 3600.0

_UNREAD_HEADERS: Final = frozenset({b"forwarded", b"x-real-ip"})
_FORWARDING_HEADERS: Final = _UNREAD_HEADERS | {b"x-forwarded-for"}
_MAX_HOPS: Final = 32
_NAT64: Final = IPv6Network("64:ff9b::/96")
_IPV6_FACTORS: Final = ((64, 1), (56, 4), (48, 16))
"""The lengths of the prefixes that an IPv6 address counts under, and the factor of the limit at each."""

log = logging.getLogger("service.addresses")


class TrustedProxies:
    """Replaces the peer's address and the scheme by what trusted proxies forward; other peers are not believed.

    A peer that forwards addresses and is not trusted is a proxy that the settings do not name, or a caller who plays
    one. The log says so at most once an hour, and so it does where a trusted proxy does not name its caller.
    """

    def __init__(self, app: ASGIApp, networks: Sequence[Network], clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._networks = networks
        self._clock = clock
        self._unnamed_warning_at = self._nameless_warning_at = -WARNING_SECONDS

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            if self._networks and self._is_trusted(_peer(scope)):
                self._believe(scope)
            elif self._clock() - self._unnamed_warning_at >= WARNING_SECONDS and _forwards(scope):
                self._unnamed_warning_at = self._clock()
                log.warning(
                    "%s sends X-Forwarded-For, Forwarded or X-Real-IP, and TOKEN_SERVICE_TRUSTED_PROXIES does not "
                    "name it. If it is your proxy, add it: until then all its callers share one address and its "
                    "limits. If it is not, a caller sent the header; ignore this",
                    _peer(scope),
                )
        return self._app(scope, receive, send)

    def _believe(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        scope[BELIEVED] = True
        scope["client"] = (self._find_client(scope, headers.getlist("x-forwarded-for")), 0)
        forwarded_scheme = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
        if forwarded_scheme in ("http", "https"):
            scope["scheme"] = forwarded_scheme

    def _find_client(self, scope: Scope, forwarded_for: Sequence[str]) -> str:
        """Return the rightmost hop that is not trusted: any caller may have written what stands left of it.

        Returns UNKNOWN where that hop is no address, or where only a header that is not read names a caller; the peer
        where nothing is forwarded.
        """
        client = peer = _peer(scope)
        hops = ",".join(forwarded_for).rsplit(",", _MAX_HOPS)[-_MAX_HOPS:]
        if not any(hop.strip() for hop in hops):
            if not any(name in _UNREAD_HEADERS for name, _ in scope["headers"]):
                return peer
            hops = [""]
        for hop in reversed(hops):
            address = _parse_hop(hop)
            if address is None:
                self._warn_of_nameless(peer)
                return UNKNOWN
            client = str(address)
            if not self._is_trusted(client):
                break
        return client

    def _warn_of_nameless(self, peer: str) -> None:
        if self._clock() - self._nameless_warning_at >= WARNING_SECONDS:
            self._nameless_warning_at = self._clock()
            log.warning(
                "the trusted proxy %s names its caller by no address in X-Forwarded-For: all callers that it does not "
                "name there share one limit",
                peer,
            )

    def _is_trusted(self, text: str) -> bool:
        address = _parse_hop(text)
        return address is not None and any(address in network for network in self._networks)


def find_address(request: Request) -> str:
    """The address to show and log."""
    return _peer(request.scope)


def get_prefixes(request: Request) -> Prefixes:
    """The networks that the caller's address counts under."""
    return _make_prefixes(_peer(request.scope))


def is_from_this_machine(scope: Scope) -> bool:
    """Return whether the caller came through loopback or a unix socket.

    A caller behind a trusted proxy is where the proxy says. A peer that forwards addresses and is not trusted may be a
    proxy on this machine, so its callers may be anywhere.
    """
    if not scope.get(BELIEVED) and _forwards(scope):
        return False
    address = _parse_hop(_peer(scope))
    return address is not None and address.is_loopback


@lru_cache(10_000)
def _make_prefixes(text: str) -> Prefixes:
    """Return an IPv4 address by itself, also where NAT64, 6to4 or Teredo wrap it in IPv6; else three IPv6 networks."""
    address = _parse_hop(text)
    if isinstance(address, IPv6Address):
        address = _unwrap(address) or address
    if isinstance(address, IPv6Address):
        return tuple(
            Prefix(str(ip_network((address, length), strict=False)), factor) for length, factor in _IPV6_FACTORS
        )
    return (Prefix(text if address is None else str(address), 1),)


def _unwrap(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address claims to hold, or None.

    The claim is good for counting only: an address that claims to hold 127.0.0.1 is not on this machine.
    """
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.teredo[1] if address.teredo else address.sixtofour


def _forwards(scope: Scope) -> bool:
    for name, _ in scope["headers"]:  # noqa: SIM110 (every request comes by here; `any` takes three times as long)
        if name in _FORWARDING_HEADERS:
            return True
    return False


def _peer(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else LOCAL_PEER


def _parse_hop(text: str) -> Address | None:
    """An address as proxies write it: with or without a port and brackets. IPv4 inside IPv6 counts as IPv4."""
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
