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

from service.embedded.binary import Release, choose_server, parse_release
from service.embedded.data_folder import make_secret_key, socket_path
from service.embedded.process import STOPPING_SECONDS, ServerProcess, StoreFailed
from service.observability.logs import EventLog
from service.system.private_files import FolderRefused, hold_lock, make_private

# A server that dies more often than that is not going to be cured by another start.
RESTARTS = 5
RESTARTS_WINDOW_SECONDS = 60
LOCK_POLL_SECONDS = 0.02

log = EventLog("service.store.embedded")


class EmbeddedStore:
    """One server over one data folder: claim the folder, start, stop.

    A thread of its own starts the server and starts it again when it dies. Not the main thread: there a signal
    could come between the birth of the server and our knowing of it. And the kernel ties the server to the
    life of the thread that started it (see service.system.parent_death), which this one is made for.
    """

    def __init__(self, data_dir: Path, *, syncs_always: bool = False) -> None:
        """With `syncs_always` each change is on the disk before it is answered."""
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
        """Takes the folder for us alone and makes its key. Raises FolderRefused."""
        make_private(self.data_dir)
        self._folder_lock = hold_lock(self.data_dir / "lock")
        if self._folder_lock is None:
            raise FolderRefused(f"{self.data_dir} is in use by another start of the service")
        if self.socket_path.parent != self.data_dir:
            make_private(self.socket_path.parent, follow_symlinks=False)
        make_secret_key(self.data_dir)

    def start(self, on_failure: Callable[[str], None]) -> None:
        """Returns when the server answers. Raises FolderRefused, NoServerBinary or StoreFailed.

        `on_failure` is told, in another thread, when the server dies later and does not come back.
        """
        self._keeper = threading.Thread(target=self._keep, args=(on_failure,), daemon=True)
        self._keeper.start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Ends the server cleanly, its append-only file complete, and gives the folder back."""
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
            status = self._server.wait()
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
        """Who wrote what is in the folder; None where nobody did, or we cannot tell."""
        try:
            return parse_release(self._release_file.read_text())
        except OSError:
            return None

    @property
    def _release_file(self) -> Path:
        return self.data_dir / "store.release"

    def _hold_store_lock(self) -> int:
        """This lock the server holds itself, so that after a kill -9 of ours the next start waits for its end."""
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
