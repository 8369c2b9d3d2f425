"""The embedded store: a Redis or Valkey server that the service starts, on a socket in the data folder.

The server ends with this process, even if the process is killed. The socket is the only way to the server, and only
the owner of the folder can reach the socket.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from service.embedded.binary import StoreFailed, get_server_binary
from service.embedded.data_folder import make_secret_key, socket_path
from service.observability.logs import EventLog
from service.system.private_files import FolderRefused, hold_lock, make_private
from service.system.process import __file__ as parent_death
from service.system.program_files import PROGRAM_FILES

# Time limits for a large append-only file, which takes long to load and to write.
LOADING_SECONDS: Final = 120
STOPPING_SECONDS: Final = 30
_ANSWER_SECONDS: Final = 1
_POLL_SECONDS: Final = 0.005
_MAX_LOG_BYTES: Final = 10_000_000

log = EventLog("service.embedded")


class EmbeddedStore:
    """A server over one data folder: claim the folder, start, stop. A server that dies is not started again."""

    def __init__(self, data_dir: Path, *, syncs_always: bool = False) -> None:
        """Prepare a store. With `syncs_always` each change is on the disk before it is answered."""
        self.data_dir = data_dir.absolute()
        self.socket_path = socket_path(data_dir)
        self._log_file = self.data_dir / "store.log"
        self._syncs_always = syncs_always
        self._folder_lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopping = False

    def claim(self) -> None:
        """Lock the folder for this process, and make its key. Raises FolderRefused if the folder cannot be used."""
        make_private(self.data_dir)
        self._folder_lock = hold_lock(self.data_dir / "lock")
        if self._folder_lock is None:
            raise FolderRefused(f"{self.data_dir} is in use by another instance of the service")
        if self.socket_path.parent != self.data_dir:
            make_private(self.socket_path.parent, follow_symlinks=False)
        try:
            make_secret_key(self.data_dir)
            os.close(self._open_log_file())
        except OSError as error:
            raise FolderRefused(f"{self.data_dir} cannot be written: {error.strerror}") from None

    def start(self) -> None:
        """Start the server and wait until it answers. Raises FolderRefused or StoreFailed.

        The calling thread must live as long as the server (see service.system.process).
        """
        binary, lock = get_server_binary(), self._hold_store_lock()
        try:
            self._process = process = self._spawn(binary, lock)
        finally:
            os.close(lock)
        deadline = time.monotonic() + LOADING_SECONDS
        while not self._answers():
            if process.poll() is not None:
                ends = self._log_file.read_text("utf-8", errors="replace").strip().rpartition("\n")[2] or "(nothing)"
                cure = "If a newer server version wrote the data, set REDIS_URL to such a server or move the data away"
                raise StoreFailed(f"the embedded store failed to start; last line of {self._log_file}: {ends}. {cure}")
            if time.monotonic() >= deadline:
                raise StoreFailed(f"the embedded store does not respond; see {self._log_file}")
            time.sleep(_POLL_SECONDS)
        threading.Thread(target=self._report_death, args=(process,), daemon=True).start()

    def stop(self) -> None:
        """Stop the server with SIGTERM, so that it saves all data, and release the folder.

        After STOPPING_SECONDS the server is killed.
        """
        self._is_stopping = True
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOPPING_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self.socket_path.parent != self.data_dir:
            with contextlib.suppress(OSError):
                self.socket_path.parent.rmdir()
        if self._folder_lock is not None:
            os.close(self._folder_lock)
            self._folder_lock = None

    def _spawn(self, binary: str, inherited_lock: int) -> subprocess.Popen[bytes]:
        # In a process with threads it is unsafe to request the death signal between fork and exec. So a new interpreter
        # requests the signal, and then becomes the server.
        leash = [sys.executable, "-I", "-S", parent_death, str(os.getpid())]
        overrides = {
            "--port": "0",
            "--unixsocket": str(self.socket_path),
            "--unixsocketperm": "700",
            "--dir": str(self.data_dir),
            "--daemonize": "no",
            **({"--appendfsync": "always"} if self._syncs_always else {}),
        }
        options = [text for pair in overrides.items() for text in pair]
        with os.fdopen(self._open_log_file(), "ab") as output:
            if output.tell() > _MAX_LOG_BYTES:
                output.truncate(0)
            return subprocess.Popen(
                [*leash, binary, str(PROGRAM_FILES / "redis.conf"), *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(inherited_lock,),
                # A new session, which Ctrl-C in the terminal does not reach: the store has to outlive the last request.
                start_new_session=True,
            )

    def _open_log_file(self) -> int:
        return os.open(self._log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            try:
                connection.connect(str(self.socket_path))
                connection.sendall(b"PING\r\n")
                # The answer is -LOADING until the data is loaded.
                return connection.recv(64).startswith(b"+PONG")
            except OSError:
                return False

    def _report_death(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the end of the server, and log what to do if it was not stopped."""
        status = process.wait()
        if not self._is_stopping:
            log.error("the embedded store exited; restart the service", status=status, log_file=str(self._log_file))

    def _hold_store_lock(self) -> int:
        """Take the lock that the server inherits. Raises FolderRefused after STOPPING_SECONDS.

        If this process is ended by `kill -9`, the next start waits for the end of the server, which still has the lock.
        """
        deadline = time.monotonic() + STOPPING_SECONDS
        while (lock := hold_lock(self.data_dir / "store.lock")) is None:
            if time.monotonic() >= deadline:
                raise FolderRefused(f"another embedded store is still running in {self.data_dir}")
            time.sleep(_POLL_SECONDS)
        return lock
