"""Where a request comes from: the peer, or what a trusted proxy says of it.

Clauses: RFC 6749 §2.3.1 (throttles count by address)
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

LOCAL_PEER = "127.0.0.1"
"""Stands for a peer without an address: whoever connects to a unix socket is on this machine."""


class TrustedProxies:
    """Replaces the peer's address and the scheme by what trusted proxies forward; nobody else is believed."""

    def __init__(self, app: ASGIApp, networks: Sequence[Network]) -> None:
        self._app = app
        self._networks = networks

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and self._networks and self._is_trusted(_peer(scope)):
            headers = Headers(scope=scope)
            scope["client"] = (self._find_client(headers.getlist("x-forwarded-for"), _peer(scope)), 0)
            forwarded_scheme = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
            if forwarded_scheme in ("http", "https"):
                scope["scheme"] = forwarded_scheme
        return self._app(scope, receive, send)

    def _find_client(self, forwarded_for: Sequence[str], peer: str) -> str:
        """The rightmost hop that is not trusted: what stands left of it anybody may have written."""
        client = peer
        for hop in reversed(",".join(forwarded_for).split(",")):
            address = _parse_hop(hop)
            if address is None:
                break
            client = str(address)
            if not self._is_trusted(client):
                break
        return client

    def _is_trusted(self, text: str) -> bool:
        address = _parse_hop(text)
        return address is not None and any(address in network for network in self._networks)


def find_address(request: Request) -> str:
    """The address to show and log."""
    return _peer(request.scope)


def find_throttle_address(request: Request) -> str:
    """The address to count by: of IPv6 the /64, which one caller has whole."""
    return _name_for_throttle(_peer(request.scope))


def is_from_this_machine(scope: Scope) -> bool:
    """Through loopback or a unix socket; who comes by a trusted proxy is where the proxy says."""
    address = _parse_hop(_peer(scope))
    return address is not None and address.is_loopback


@lru_cache(10_000)
def _name_for_throttle(text: str) -> str:
    address = _parse_hop(text)
    if isinstance(address, IPv6Address):
        return str(ip_network((address, 64), strict=False))
    return text if address is None else str(address)


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
