"""Folders that only this user may read, and locks on files."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path


class FolderRefused(Exception):
    """The folder cannot be used; the message says why, in one line."""


def make_private(folder: Path, *, follow_symlinks: bool = True) -> None:
    """Nobody but us may look into it: whoever can connect to the store can end every session.

    Where others can write beside it a link is not to be followed: it may be theirs.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat(follow_symlinks=follow_symlinks)
        _check_owner(folder, status)
        if stat.S_IMODE(status.st_mode) != 0o700:
            folder.chmod(0o700)
    except FileExistsError:
        raise FolderRefused(f"{folder} is not a folder") from None
    except OSError as error:
        raise FolderRefused(f"{folder} cannot be used as a data folder: {error.strerror}") from None


def _check_owner(folder: Path, status: os.stat_result) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise FolderRefused(f"{folder} is not a folder")
    if status.st_uid != os.geteuid():
        raise FolderRefused(f"{folder} belongs to another user (id {status.st_uid})")


def hold_lock(file: Path) -> int | None:
    """The open file that holds the lock until it is closed (our end closes it too); None: somebody has it."""
    try:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FolderRefused(f"{file} cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
