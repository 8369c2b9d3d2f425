"""Checks of absolute URIs: targets of browser redirects with their origins, and servers that this service calls.

Clauses: RFC 6749 §3.1.2, §3.1, §3.2, RFC 6454 §6.2, RFC 8252 §7.1, §7.3
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from .grammar import is_vschar

_EXPECTED: Final = (
    "expected an absolute URI such as https://app.example/callback, "
    "without fragment, user information, spaces and backslashes"
)

_MAX_PORT: Final = 65535
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK: Final = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\]))(?::([0-9]{1,5}))?((?:[/?].*)?)")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]+)?")


def is_loopback(host: str) -> bool:
    """Return True if the host is this machine: 127.0.0.0/8, ::1 or localhost."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_local(address: str) -> bool:
    """Return True if the host of the address is this machine."""
    return is_loopback(urlsplit(address).hostname or "")


def is_unprotected(address: str) -> bool:
    """Return True if what is sent to the address leaves over plain http to another machine.

    Clauses: RFC 6749 §3.1.2.1 (a warning where the answer leaves unprotected)
    """
    return urlsplit(address).scheme == "http" and not is_local(address)


def find_uri_mistake(text: str) -> str | None:
    """Return why a browser may not be redirected to this text as an absolute URI, or None if it may.

    An app's own scheme is a domain name in reverse order, so it contains a dot. A scheme without a dot may have a
    special meaning in browsers (`view-source:`, `intent:`).

    Clauses: RFC 6749 §3.1.2 (absolute, no fragment), RFC 8252 §7.1 (private-use schemes)
    """
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises ValueError for a wrong one
    except ValueError:
        return _EXPECTED
    is_web = parts.scheme in ("http", "https")
    has_other_parts = any(character in text for character in " \\#") or "@" in parts.netloc
    if not parts.scheme or not is_vschar(text) or has_other_parts or (is_web and not parts.hostname):
        return _EXPECTED
    if not is_web and "." not in parts.scheme:
        return "expected the scheme http or https, or an app's own scheme with a dot, such as com.example.app"
    return None


def find_server_mistake(text: str) -> str | None:
    """Return why a server at this address may not receive secrets from this service, or None if it may.

    Clauses: RFC 6749 §3.1, §3.2 (TLS)
    """
    mistake = find_uri_mistake(text)
    if mistake is not None:
        return mistake
    if urlsplit(text).scheme not in ("http", "https") or is_unprotected(text):
        return "expected https (http only on this machine)"
    return None


def list_origins(redirect_uris: Iterable[str], *, any_loopback_port: bool) -> list[str]:
    """Return the web origins of redirect URIs. The redirect URI of an app's own scheme has no origin.

    If `any_loopback_port`, the origin of a loopback address has `*` in place of its port.

    Clauses: RFC 6454 §6.2, RFC 8252 §7.3
    """
    web = [uri for uri in redirect_uris if uri.lower().startswith(("http:", "https:"))]
    return [(any_loopback_port and free_loopback_port(origin)) or origin for origin in map(get_origin, web)]


def get_origin(uri: str) -> str:
    """Return the web origin of a URI with a host, as a browser would send it. Raises ValueError for a wrong port.

    Clauses: RFC 6454 §6.2
    """
    parts = urlsplit(uri)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = "" if parts.port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def find_origin_mistake(text: str) -> str | None:
    """Return why no browser sends this text as an origin, or None if one may. Any scheme with a host is accepted."""
    try:
        if _ORIGIN.fullmatch(text) and get_origin(text) == text:
            return None
    except ValueError:
        pass
    return "expected an origin such as https://app.example, without a path or a default port"


def free_loopback_port(uri: str) -> str | None:
    """Return a URI or origin of a loopback address with `*` in place of its port, or None for any other one.

    Clauses: RFC 8252 §7.3
    """
    match = _LOOPBACK.fullmatch(uri)
    return f"{match[1]}:*{match[3]}" if match and int(match[2] or 0) <= _MAX_PORT else None
