"""A start of the service at a terminal: the log, then one curl command."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers import CHECKOUT
from tests.support.terminal import NEEDS_A_TERMINAL, open_terminal, read_terminal, screen_lines
from tests.support.waiting import MAX_WAIT_SECONDS

LAST_LINE_OF_EXAMPLE = "-d scope=realm:main+role:enduser"
LAST_LINE_OF_OTHERS = "/readyz"


class TerminalStart:
    """A service whose stdout and stderr are one terminal."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self._screen = ""

    def read_until(self, end: str) -> list[str]:
        """Return the lines of the screen once a line ends with this text, or the service has ended."""
        while not any(line.endswith(end) for line in screen_lines(self._screen)):
            part = read_terminal(self._terminal)
            assert part, self._screen
            self._screen += part
        return screen_lines(self._screen)

    def press_ctrl_c(self) -> list[str]:
        """End the service. Returns all lines of the screen."""
        self.process.send_signal(signal.SIGINT)
        while part := read_terminal(self._terminal):
            self._screen += part
        assert self.process.wait(MAX_WAIT_SECONDS) == 0
        return screen_lines(self._screen)


@contextlib.contextmanager
def start_at_terminal(data_dir: Path, *arguments: str, **variables: str) -> Iterator[TerminalStart]:
    own_end, terminal_end = open_terminal()
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {"PYTHONPATH": str(CHECKOUT), "TOKEN_SERVICE_DATA_DIR": str(data_dir), "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "service", "--port", "0", *arguments],
        cwd=CHECKOUT,
        env=environment | variables,
        stdin=terminal_end,
        stdout=terminal_end,
        stderr=terminal_end,
    )
    os.close(terminal_end)
    try:
        yield TerminalStart(process, own_end)
    finally:
        process.terminate()
        process.wait(MAX_WAIT_SECONDS)
        os.close(own_end)


@NEEDS_A_TERMINAL
def test_a_first_start_ends_with_one_command(tmp_path: Path) -> None:
    with start_at_terminal(tmp_path / "data", "--workers", "2") as service:
        *log, command = service.read_until(LAST_LINE_OF_EXAMPLE)
        everything = service.press_ctrl_c()

    assert command.startswith("curl -sS http://127.0.0.1:")
    assert sum(line.startswith("curl") for line in everything) == 1
    assert sum("ready" in line and "address=http://127.0.0.1:" in line for line in log) == 1
    assert not any("\x1b" in line for line in everything)


@NEEDS_A_TERMINAL
def test_start_with_a_custom_seed_shows_its_warnings(tmp_path: Path) -> None:
    seed = tmp_path / "seed.yaml"
    seed.write_text(
        "clients: [{client_id: shop, client_secret: short one, client_name: Shop, grant_types: [password]}]"
    )
    with start_at_terminal(tmp_path / "data", TOKEN_SERVICE_SEED_FILE=str(seed)) as service:
        screen = "\n".join(service.read_until(LAST_LINE_OF_OTHERS))

    assert "client secrets shorter than 20 characters can be guessed: shop" in screen
    assert "short one" not in screen
