"""The private folder of the embedded store: its locks, its key and the place of its socket."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import stat
from pathlib import Path

__all__ = ["FolderRefused", "hold_lock", "make_private", "make_secret_key", "socket_path"]

# The kernel keeps 108 bytes for the path of a socket (BSD: 104), the closing zero included.
LONGEST_SOCKET_PATH_BYTES = 100


class FolderRefused(Exception):
    """The folder cannot be used; the message says why, in one line."""


def socket_path(data_dir: Path) -> Path:
    """Where the store of this folder listens; every process that asks gets the same answer."""
    path = data_dir.absolute() / "store.sock"
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
    # Not $TMPDIR: it may be as deep again, and another shell may have another one.
    return Path(f"/tmp/token-service-{os.geteuid()}-{digest}") / "store.sock"


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


def make_secret_key(data_dir: Path) -> None:
    """Makes the key of this folder, once; only the holder of the folder's lock may call it."""
    file = data_dir / "secret_key"
    if file.exists():
        return
    # Never half a key: it comes into being by the rename.
    draft = data_dir / "secret_key.draft"
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as text:
        text.write(secrets.token_urlsafe(48) + "\n")
        text.flush()
        os.fsync(text.fileno())
    draft.replace(file)
