"""The embedded store: a Redis or Valkey server that the service starts, on a socket in the data folder.

The server ends with this process, even if the process is killed. The socket is the only way to the server, and only
the owner of the folder can reach the socket.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

from service.embedded.binary import get_server_binary
from service.embedded.data_folder import make_secret_key, socket_path
from service.embedded.process import STOPPING_SECONDS, ServerProcess
from service.observability.logs import EventLog
from service.system.private_files import FolderRefused, hold_lock, make_private

LOCK_POLL_SECONDS = 0.02

log = EventLog("service.embedded")


class EmbeddedStore:
    """A server over one data folder: claim the folder, start, stop. A server that dies is not started again."""

    def __init__(self, data_dir: Path, *, syncs_always: bool = False) -> None:
        """Prepare a store. With `syncs_always` each change is on the disk before it is answered."""
        self.data_dir = data_dir.absolute()
        self.socket_path = socket_path(data_dir)
        self._syncs_always = syncs_always
        self._folder_lock: int | None = None
        self._server: ServerProcess | None = None
        self._is_stopping = False

    @property
    def pid(self) -> int | None:
        return self._server.process.pid if self._server else None

    def claim(self) -> None:
        """Lock the folder for this process, and make its key. Raises FolderRefused if the folder cannot be used."""
        make_private(self.data_dir)
        self._folder_lock = hold_lock(self.data_dir / "lock")
        if self._folder_lock is None:
            raise FolderRefused(f"{self.data_dir} is in use by another start of the service")
        if self.socket_path.parent != self.data_dir:
            make_private(self.socket_path.parent, follow_symlinks=False)
        make_secret_key(self.data_dir)

    def start(self) -> None:
        """Start the server and wait until it answers. Raises FolderRefused, NoServerBinary or StoreFailed.

        The calling thread must live as long as the server (see service.system.parent_death).
        """
        binary, lock = get_server_binary(), self._hold_store_lock()
        try:
            self._server = ServerProcess(binary, self.data_dir, self.socket_path, lock, syncs_always=self._syncs_always)
        finally:
            os.close(lock)
        self._server.wait_until_ready()
        threading.Thread(target=self._report_death, args=(self._server,), daemon=True).start()

    def stop(self) -> None:
        """Stop the server cleanly, with its append-only file complete, and release the folder."""
        self._is_stopping = True
        if self._server is not None:
            self._server.end()
        if self.socket_path.parent != self.data_dir:
            with contextlib.suppress(OSError):
                self.socket_path.parent.rmdir()
        if self._folder_lock is not None:
            os.close(self._folder_lock)
            self._folder_lock = None

    def _report_death(self, server: ServerProcess) -> None:
        """Wait for the end of the server, and log what to do if it was not stopped."""
        status = server.process.wait()
        if not self._is_stopping:
            log.error("the embedded store died; restart the service", status=status, log_file=str(server.log_file))

    def _hold_store_lock(self) -> int:
        """Take the lock that the server inherits. Raises FolderRefused after STOPPING_SECONDS.

        If this process is ended by `kill -9`, the next start waits for the end of the server, which still has the lock.
        """
        deadline = time.monotonic() + STOPPING_SECONDS
        while (lock := hold_lock(self.data_dir / "store.lock")) is None:
            if time.monotonic() >= deadline:
                raise FolderRefused(f"the store of an earlier start still runs in {self.data_dir}")
            time.sleep(LOCK_POLL_SECONDS)
        return lock
