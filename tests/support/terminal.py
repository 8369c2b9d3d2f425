"""A terminal for tests, and what a process shows on it."""

import os
import pty
import re
import select

import pytest

from tests.support.left_out import TERMINAL, leave_out

NEEDS_A_TERMINAL = pytest.mark.long
"""These tests run only under `--all`.

A minimal root has no terminals, and may not let `scripts/install --programs` mount them. They are then left out.
"""


def open_terminal() -> tuple[int, int]:
    """Return the two ends of a new terminal, the second for the process. Leaves the test out if there is none."""
    try:
        return pty.openpty()
    except OSError:
        leave_out(TERMINAL)


def screen_lines(screen: str) -> list[str]:
    """Return the lines of the screen without control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", screen).splitlines()


def read_terminal(terminal: int) -> str:
    """Return the next output, or an empty text if the process has ended or is silent."""
    ready, _, _ = select.select([terminal], [], [])
    try:
        return os.read(terminal, 4096).decode() if ready else ""
    except OSError:  # the other end is closed
        return ""
