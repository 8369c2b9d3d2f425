"""The embedded store: a real server of our own, on a socket in the data folder.

It ends when we end, however we end, and is started again when it dies first. Nothing but the socket leads
to it, and nobody but the folder's owner gets to the socket.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import structlog

from service.store.data_folder import FolderRefused, hold_lock, make_private, make_secret_key, socket_path
from service.store.server_binary import NoServerBinary, find_server_binary
from service.store.server_process import STOPPING_SECONDS, ServerProcess, StoreFailed

__all__ = ["EmbeddedStore", "FolderRefused", "NoServerBinary", "StoreFailed", "socket_path"]

# A server that dies more often than that is not going to be cured by another start.
RESTARTS = 5
RESTARTS_WINDOW_SECONDS = 60

log = structlog.get_logger(__name__)


class EmbeddedStore:
    """One server over one data folder: claim the folder, start, stop."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.absolute()
        self.socket_path = socket_path(data_dir)
        self._folder_lock: int | None = None
        self._server: ServerProcess | None = None
        self._changing = threading.Lock()
        self._stopping = False
        self._watcher: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        return self._server.process.pid if self._server else None

    def claim(self) -> None:
        """Takes the folder for us alone and makes its key. Raises FolderRefused."""
        make_private(self.data_dir)
        self._folder_lock = hold_lock(self.data_dir / "lock")
        if self._folder_lock is None:
            raise FolderRefused(f"{self.data_dir} is in use by another start of the service")
        if self.socket_path.parent != self.data_dir:
            make_private(self.socket_path.parent, follow_symlinks=False)
        make_secret_key(self.data_dir)

    def start(self, on_failure: Callable[[str], None]) -> None:
        """Returns when the server answers; call it from the main thread (see service.lifeline).

        `on_failure` is told when the server dies later and does not come back. Raises FolderRefused,
        NoServerBinary or StoreFailed.
        """
        server = self._server = self._launch()
        server.wait_until_ready()
        self._watcher = threading.Thread(target=self._watch, args=(on_failure,), daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """Ends the server cleanly, its append-only file complete, and gives the folder back."""
        with self._changing:
            self._stopping = True
            server = self._server
        if server is not None:
            server.end()
        if self._watcher is not None:
            self._watcher.join()
        self._leave_folder()

    def _launch(self) -> ServerProcess:
        binary = find_server_binary()
        # This lock the server holds itself. So after a kill -9 of ours the next start waits until the old
        # server has written everything down and gone.
        lock = hold_lock(self.data_dir / "store.lock", patience_seconds=STOPPING_SECONDS)
        if lock is None:
            raise FolderRefused(f"the store of an earlier start still runs in {self.data_dir}")
        try:
            return ServerProcess(binary, self.data_dir, self.socket_path, lock)
        finally:
            os.close(lock)

    def _watch(self, on_failure: Callable[[str], None]) -> None:
        # Servers started here are tied to this thread's life, which ends after theirs.
        deaths: deque[float] = deque(maxlen=RESTARTS)
        while (status := self._wait_for_death()) is not None:
            log.error("embedded store died, starting it again", status=status)
            now = time.monotonic()
            if len(deaths) == RESTARTS and now - deaths[0] < RESTARTS_WINDOW_SECONDS:
                return on_failure("the embedded store dies again and again")
            deaths.append(now)
            try:
                self._start_again()
            except (FolderRefused, NoServerBinary, StoreFailed, OSError) as error:
                if not self._stopping:
                    on_failure(str(error))
                return None
        return None

    def _wait_for_death(self) -> int | None:
        """The exit status of a server that died on its own; None when we are stopping."""
        assert self._server is not None
        status = self._server.wait()
        with self._changing:
            return None if self._stopping else status

    def _start_again(self) -> None:
        with self._changing:
            if self._stopping:
                return
            server = self._server = self._launch()
        server.wait_until_ready()
        log.info("embedded store is back")

    def _leave_folder(self) -> None:
        if self.socket_path.parent != self.data_dir:
            with contextlib.suppress(OSError):
                self.socket_path.parent.rmdir()
        if self._folder_lock is not None:
            os.close(self._folder_lock)
            self._folder_lock = None
