"""Direct access to the headers in an ASGI scope, for code that runs so often that a Request would cost too much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

LOCAL_PEER: Final = "127.0.0.1"
"""The address of a peer without one: a peer that connects to a unix socket is on this machine."""


def list_header_values(scope: Mapping[str, Any], name: bytes) -> list[str]:
    """Return all values of the header `name`, which is in lower case."""
    return [value.decode("latin-1") for found, value in scope["headers"] if found == name]
