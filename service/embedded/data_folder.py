"""The private folder of the embedded store: its locks, its key and the place of its socket."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

# The kernel keeps 108 bytes for the path of a socket (BSD: 104), the closing zero included.
MAX_SOCKET_PATH_BYTES = 100


def socket_path(data_dir: Path) -> Path:
    """Where the store of this folder listens; every process that asks gets the same answer."""
    path = data_dir.absolute() / "store.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
    # Not $TMPDIR: it may be as deep again, and another shell may have another one.
    return Path(f"/tmp/token-service-{os.geteuid()}-{digest}") / "store.sock"


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
