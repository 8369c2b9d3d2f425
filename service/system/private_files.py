"""Folders and files that only their owner may read, and exclusive locks on files."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path


class FolderRefused(Exception):
    """Error for a folder that cannot be used. The message gives the reason in one line."""


def make_private(folder: Path, *, follow_symlinks: bool = True) -> None:
    """Create the folder if it is missing, and give it mode 0700.

    A process that can connect to the embedded store can end every session, so no other user may enter its folder.
    If other users can write to the parent folder, pass `follow_symlinks=False`: a link there may be theirs.
    Raises FolderRefused if the path is not a folder, belongs to another user, or cannot be used.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat(follow_symlinks=follow_symlinks)
        if not stat.S_ISDIR(status.st_mode):
            raise FolderRefused(f"{folder} is not a folder")
        if status.st_uid != os.geteuid():
            raise FolderRefused(f"{folder} belongs to another user (id {status.st_uid})")
        if stat.S_IMODE(status.st_mode) != 0o700:
            folder.chmod(0o700)
    except FileExistsError:
        raise FolderRefused(f"{folder} is not a folder") from None
    except OSError as error:
        raise FolderRefused(f"{folder} cannot be used as a data folder: {error.strerror}") from None


def write_private(file: Path, content: bytes) -> None:
    """Write a file with mode 0600. It appears complete, by a rename, so no reader and no crash meets half of it."""
    draft = file.with_name(f"{file.name}.draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
        written.write(content)
        written.flush()
        os.fsync(written.fileno())
    draft.replace(file)


def hold_lock(file: Path) -> int | None:
    """Take an exclusive lock on a file, which is created if it is missing. Does not wait.

    Returns an open file descriptor, or None if the lock is held already. The lock lasts until the descriptor and its
    inherited copies are closed. The end of a process closes its own. Raises FolderRefused if the file cannot be opened.
    """
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
