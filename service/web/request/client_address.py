"""The address that a request comes from: the peer's, or the one that a trusted proxy forwards.

Clauses: RFC 6749 §2.3.1 (throttles count by address)
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from starlette.requests import Request
from starlette.types import Scope

from service.store.attempts import Prefix, Prefixes
from service.web.request.headers import LOCAL_PEER
from service.web.request.state import PEER_IS_TRUSTED

Address = IPv4Address | IPv6Address


UNREAD_HEADERS: Final = frozenset({b"forwarded", b"x-real-ip"})
_FORWARDING_HEADERS: Final = UNREAD_HEADERS | {b"x-forwarded-for"}
_NAT64: Final = IPv6Network("64:ff9b::/96")
_IPV6_FACTORS: Final = ((64, 1), (56, 4), (48, 16))
"""The prefix lengths under which an IPv6 address is counted, and the factor of the limit at each length."""


def get_address(request: Request) -> str:
    """Return the address for display and for the log."""
    return get_peer(request.scope)


def get_prefixes(request: Request) -> Prefixes:
    """Return the networks under which the caller's address is counted by rate limits."""
    return _make_prefixes(get_peer(request.scope))


def is_from_this_machine(scope: Scope) -> bool:
    """Return True if the caller came through loopback or a unix socket.

    Behind a trusted proxy, the forwarded address decides. A peer that forwards addresses and is not trusted may be a
    proxy on this machine, so its callers may be anywhere.
    """
    if not PEER_IS_TRUSTED.get(scope, False) and forwards_addresses(scope):
        return False
    address = parse_hop(get_peer(scope))
    return address is not None and address.is_loopback


@lru_cache(10_000)
def _make_prefixes(text: str) -> Prefixes:
    """Return the networks of an address: one network for IPv4, three for IPv6.

    An IPv4 address that NAT64, 6to4 or Teredo wraps in IPv6 counts as IPv4.
    """
    address = parse_hop(text)
    if isinstance(address, IPv6Address):
        address = _unwrap(address) or address
    if isinstance(address, IPv6Address):
        return tuple(
            Prefix(str(ip_network((address, length), strict=False)), factor) for length, factor in _IPV6_FACTORS
        )
    return (Prefix(text if address is None else str(address), 1),)


def _unwrap(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address claims to contain, or None.

    The claim is used for counting only: an address that claims to contain 127.0.0.1 is not on this machine.
    """
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.teredo[1] if address.teredo else address.sixtofour


def forwards_addresses(scope: Scope) -> bool:
    return any(name in _FORWARDING_HEADERS for name, _ in scope["headers"])


def get_peer(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else LOCAL_PEER


def parse_hop(text: str) -> Address | None:
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
