"""Absolute URIs: where a browser may be sent, and which servers the service itself speaks to.

Clauses: RFC 6749 §3.1.2, §3.1, §3.2
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from service.protocol.grammar import is_vschar

_FORBIDDEN_SCHEMES: Final = ("javascript", "data", "file", "vbscript", "about", "blob")
_THIS_MACHINE: Final = ("127.0.0.1", "::1", "localhost")


def find_uri_mistake(text: str) -> str | None:
    """What keeps a text from being an absolute URI that a browser may be sent to; None where nothing does.

    Clauses: RFC 6749 §3.1.2 (absolute, no fragment)
    """
    if not (is_vschar(text) and " " not in text and "\\" not in text):
        return "expected a URI of printable ASCII characters without spaces and backslashes"
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return "expected a URI with a valid host and port"
    if not parts.scheme:
        return "expected an absolute URI, with its scheme"
    if "#" in text:
        return "expected a URI without a fragment"
    if parts.scheme in _FORBIDDEN_SCHEMES:
        return f"the scheme {parts.scheme} is not allowed"
    if parts.scheme in ("http", "https") and not parts.hostname:
        return "expected a URI with a host"
    if "@" in parts.netloc:
        return "expected a URI without user information"
    return None


def find_server_mistake(text: str) -> str | None:
    """What keeps a text from being the address of a server that gets secrets from us; None where nothing does.

    Clauses: RFC 6749 §3.1, §3.2 (TLS)
    """
    mistake = find_uri_mistake(text)
    if mistake is not None:
        return mistake
    parts = urlsplit(text)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _THIS_MACHINE):
        return None
    return "expected https (http only on this machine)"
