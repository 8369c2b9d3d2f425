"""Ctrl-C during the start of each script that runs Python: no traceback, and nothing is left."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.left_out import get_program
from tests.support.servers import CHECKOUT, free_port
from tests.support.waiting import MAX_WAIT_SECONDS

MOMENTS = 10
MOMENTS_IN_LONG_RUNS = 20
IMPORT = "import time:"


def interrupt_after(imports: int, command: Sequence[str], data_dir: Path) -> tuple[int, list[str]]:
    """Press Ctrl-C once Python has imported so many modules. Returns the exit status and the lines of stderr."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {"PYTHONPROFILEIMPORTTIME": "1", "TOKEN_SERVICE_DATA_DIR": str(data_dir)}
    with subprocess.Popen(
        [CHECKOUT / "scripts" / command[0], *command[1:]],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        while imports and (line := process.stderr.readline()):
            imports -= line.startswith(IMPORT)
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, rest = process.communicate(timeout=MAX_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, [line for line in rest.splitlines() if line and not line.startswith((IMPORT, "{"))]


@pytest.mark.parametrize(
    ("imports", "command"),
    [
        (240, ("admin", "user", "list")),
        (540, ("serve", "--port", "0")),
        (1200, ("serve", "--port", "0", "--workers", "2")),
        (560, ("example-client", "--port", "0")),
        (400, ("stack",)),
    ],
    ids=["the console", "one worker", "two workers", "the example client", "the stack"],
)
def test_ctrl_c_during_a_start_prints_no_traceback(
    request: pytest.FixtureRequest, tmp_path: Path, imports: int, command: tuple[str, ...]
) -> None:
    if command[0] == "stack":
        get_program("nginx")
        ports = [f"--{name}-port={free_port()}" for name in ("https", "http", "service", "redis")]
        command += (*ports, "--folder", str(tmp_path / "stack"))
    moments = MOMENTS_IN_LONG_RUNS if request.config.getoption("--all") else MOMENTS
    for moment in range(moments):
        status, lines = interrupt_after(imports * moment // moments, command, tmp_path / str(moment))
        # The shell that starts Python dies of the signal. A process that was faster than the signal ends as usual.
        assert status in (130, -signal.SIGINT, 1 if command[0] == "admin" else 0), lines
        assert len(lines) <= 1, lines
        assert "Traceback" not in "".join(lines)
