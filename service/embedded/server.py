"""The embedded store: a Redis or Valkey server that the service starts, on a socket in the data folder.

The server ends with this process, even if the process is killed, and is started again if it dies earlier. The socket is
the only way to the server, and only the owner of the folder can reach the socket.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from service.embedded.binary import Release, choose_server, parse_release
from service.embedded.data_folder import make_secret_key, socket_path
from service.embedded.process import STOPPING_SECONDS, ServerProcess, StoreFailed
from service.observability.logs import EventLog
from service.system.private_files import FolderRefused, hold_lock, make_private

# If the server dies more often than this within the window, another start would not help.
RESTARTS = 5
RESTARTS_WINDOW_SECONDS = 60
LOCK_POLL_SECONDS = 0.02

log = EventLog("service.store.embedded")


class EmbeddedStore:
    """A server over one data folder: claim the folder, start, stop.

    A dedicated thread starts the server, and starts it again when it dies. In the main thread a signal could interrupt
    between the start of the server and the assignment of `_server`. The kernel also ties the server to the life of the
    thread that started it (see service.system.parent_death).
    """

    def __init__(self, data_dir: Path, *, syncs_always: bool = False) -> None:
        """Prepare a store. With `syncs_always` each change is on the disk before it is answered."""
        self.data_dir = data_dir.absolute()
        self.socket_path = socket_path(data_dir)
        self._syncs_always = syncs_always
        self._folder_lock: int | None = None
        self._server: ServerProcess | None = None
        self._keeper: threading.Thread | None = None
        self._started = threading.Event()
        self._error: Exception | None = None
        self._stopping = threading.Event()
        self._changing = threading.Lock()

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

    def start(self, on_failure: Callable[[str], None]) -> None:
        """Start the server and wait until it answers. Raises FolderRefused, NoServerBinary or StoreFailed.

        If the server dies later and cannot be started again, `on_failure` is called with the reason, in another thread.
        """
        self._keeper = threading.Thread(target=self._keep, args=(on_failure,), daemon=True)
        self._keeper.start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stop the server cleanly, with its append-only file complete, and release the folder."""
        with self._changing:
            self._stopping.set()
        if self._server is not None:
            self._server.end()
        if self._keeper is not None:
            self._keeper.join()
        self._leave_folder()

    def _keep(self, on_failure: Callable[[str], None]) -> None:
        try:
            self._start_server()
        except Exception as error:
            self._error = error
            return
        finally:
            self._started.set()
        try:
            self._keep_alive()
        except Exception as error:
            if not self._stopping.is_set():
                on_failure(str(error))

    def _keep_alive(self) -> None:
        deaths: deque[float] = deque(maxlen=RESTARTS)
        while self._server is not None:
            status = self._server.process.wait()
            if self._stopping.is_set():
                return
            log.error("embedded store died, starting it again", status=status)
            now = time.monotonic()
            if len(deaths) == RESTARTS and now - deaths[0] < RESTARTS_WINDOW_SECONDS:
                raise StoreFailed("the embedded store dies again and again")
            deaths.append(now)
            self._start_server()
            log.info("embedded store is back")

    def _start_server(self) -> None:
        lock = self._hold_store_lock()
        try:
            binary, release = choose_server(self._data_of())
            with self._changing:
                if self._stopping.is_set():
                    return
                self._server = ServerProcess(
                    binary, self.data_dir, self.socket_path, lock, syncs_always=self._syncs_always
                )
        finally:
            os.close(lock)
        self._server.wait_until_ready()
        self._release_file.write_text(f"{release}\n")

    def _data_of(self) -> Release | None:
        """Return the release that wrote the data in the folder, or None if there is none or it is unknown."""
        try:
            return parse_release(self._release_file.read_text())
        except OSError:
            return None

    @property
    def _release_file(self) -> Path:
        return self.data_dir / "store.release"

    def _hold_store_lock(self) -> int:
        """Take the lock that the server inherits. Raises FolderRefused after STOPPING_SECONDS.

        If this process is ended by `kill -9`, the next start waits for the end of the server, which still has the lock.
        """
        deadline = time.monotonic() + STOPPING_SECONDS
        while (lock := hold_lock(self.data_dir / "store.lock")) is None:
            if self._stopping.wait(LOCK_POLL_SECONDS) or time.monotonic() >= deadline:
                raise FolderRefused(f"the store of an earlier start still runs in {self.data_dir}")
        return lock

    def _leave_folder(self) -> None:
        if self.socket_path.parent != self.data_dir:
            with contextlib.suppress(OSError):
                self.socket_path.parent.rmdir()
        if self._folder_lock is not None:
            os.close(self._folder_lock)
            self._folder_lock = None
