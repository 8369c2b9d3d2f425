"""Checks of absolute URIs: targets of browser redirects with their origins, and servers that this service calls.

Clauses: RFC 6749 §3.1.2, §3.1, §3.2, RFC 8252 §7.1
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from .grammar import is_vschar

_EXPECTED: Final = (
    "expected an absolute URI with a valid host and port, in printable ASCII, "
    "without spaces, backslashes, fragment and user information"
)


def is_loopback(host: str) -> bool:
    """Return True if the host is this machine: 127.0.0.0/8, ::1 or localhost."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


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
        return "expected the scheme http or https, or one of an app's own with a dot in it, such as com.example.app"
    return None


def find_server_mistake(text: str) -> str | None:
    """Return why a server at this address may not receive secrets from this service, or None if it may.

    Clauses: RFC 6749 §3.1, §3.2 (TLS)
    """
    mistake = find_uri_mistake(text)
    if mistake is not None:
        return mistake
    parts = urlsplit(text)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return None
    return "expected https (http only on this machine)"


def list_origins(redirect_uris: Iterable[str]) -> tuple[str, ...]:
    """Return the web origins of redirect URIs as a browser would send them, sorted. A private-use scheme has no origin.

    Clauses: RFC 6454 §6.2
    """
    origins = set()
    for redirect_uri in redirect_uris:
        parts = urlsplit(redirect_uri)
        if parts.scheme in ("http", "https"):
            default_port = {"http": 80, "https": 443}[parts.scheme]
            host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
            port = "" if parts.port in (None, default_port) else f":{parts.port}"
            origins.add(f"{parts.scheme}://{host}{port}")
    return tuple(sorted(origins))
