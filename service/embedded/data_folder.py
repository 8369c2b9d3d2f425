"""The private data folder of the embedded store: its secret key and the path of its socket."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

from service.system.private_files import write_private

# The kernel limits the path of a socket to 108 bytes (BSD: 104), with the closing zero.
MAX_SOCKET_PATH_BYTES = 100


def socket_path(data_dir: Path) -> Path:
    """Return the path of the socket on which the store of this folder listens. It is the same in every process."""
    path = data_dir.absolute() / "store.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
    # Not $TMPDIR: that path may be too long as well, and may differ from shell to shell.
    return Path(f"/tmp/token-service-{os.geteuid()}-{digest}") / "store.sock"


def make_secret_key(data_dir: Path) -> None:
    """Make the secret key of this folder if it has none. Only the holder of the folder's lock may call this."""
    file = data_dir / "secret_key"
    if not file.exists():
        write_private(file, f"{secrets.token_urlsafe(48)}\n".encode())
