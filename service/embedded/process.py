"""The server process of the embedded store, from its start to its end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO

from service.system import parent_death
from service.system.program_files import PROGRAM_FILES

CONFIGURATION = PROGRAM_FILES / "redis.conf"

# Time limits for a large append-only file, which takes long to load and to write.
LOADING_SECONDS = 120
STOPPING_SECONDS = 30
ANSWER_SECONDS = 1
POLL_SECONDS = 0.005
MAX_LOG_BYTES = 10_000_000


class StoreFailed(Exception):
    """Error if the server does not start. The message is one line."""


class ServerProcess:
    def __init__(
        self, binary: str, data_dir: Path, socket_path: Path, inherited_lock: int, *, syncs_always: bool
    ) -> None:
        """Start the server. The calling thread must live as long as the server (see service.system.parent_death)."""
        self.socket_path = socket_path
        self.log_file = data_dir / "store.log"
        with _open_log(self.log_file) as output:
            self.process = subprocess.Popen(
                _command(binary, data_dir, socket_path, syncs_always),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(inherited_lock,),
                # A new session, which Ctrl-C in the terminal does not reach: the store has to outlive the last request.
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        """Wait until the server has loaded its data and answers. Raises StoreFailed if it ends or takes too long."""
        deadline = time.monotonic() + LOADING_SECONDS
        while not self._answers():
            if self.process.poll() is not None:
                cure = "If a later server wrote the data, set REDIS_URL to such a server, or move the data away"
                raise StoreFailed(
                    f"the embedded store did not start; {self.log_file} ends: {self._last_line()}. {cure}"
                )
            if time.monotonic() >= deadline:
                raise StoreFailed(f"the embedded store does not answer; see {self.log_file}")
            time.sleep(POLL_SECONDS)

    def end(self) -> None:
        """Stop the server with SIGTERM, so that it saves all data. After STOPPING_SECONDS it is killed."""
        self.process.terminate()
        try:
            self.process.wait(STOPPING_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_SECONDS)
            try:
                connection.connect(str(self.socket_path))
                connection.sendall(b"PING\r\n")
                # The answer is -LOADING until the data is loaded.
                return connection.recv(64).startswith(b"+PONG")
            except OSError:
                return False

    def _last_line(self) -> str:
        lines = self.log_file.read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "(nothing)")


def _command(binary: str, data_dir: Path, socket_path: Path, syncs_always: bool) -> list[str]:
    # In a process with threads it is unsafe to request the death signal between fork and exec. So a new interpreter
    # requests the signal, and then becomes the server.
    leash = [sys.executable, "-I", "-S", parent_death.__file__, str(os.getpid())]
    overrides = {
        "--port": "0",
        "--unixsocket": str(socket_path),
        "--unixsocketperm": "700",
        "--dir": str(data_dir),
        "--daemonize": "no",
    }
    if syncs_always:
        overrides["--appendfsync"] = "always"
    return [*leash, binary, str(CONFIGURATION), *(text for pair in overrides.items() for text in pair)]


def _open_log(file: Path) -> BinaryIO:
    log = os.fdopen(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "ab")
    if log.tell() > MAX_LOG_BYTES:
        log.truncate(0)
    return log
