"""The lock that an embedded Redis holds on its data folder."""

import fcntl
from pathlib import Path


def can_lock(file: Path) -> bool:
    """Return True if no process holds the lock of the file."""
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
