"""Tests that need a program that this machine lacks: they are left out, and tests/support/selection.py counts them."""

import shutil
from typing import NoReturn

import pytest

from deployment.stack import SEARCH_PATH

CHROMIUM = "Chromium"
JAVASCRIPT = "the packages of tests/npm"
REDIS_SERVER = "redis-server"
TERMINAL = "a terminal (/dev/pts)"

PREFIX = "needs "
"""The beginning of the reason with which pytest skips a test that is left out."""


def leave_out(need: str) -> NoReturn:
    """End the test as one that was left out. `scripts/install --all-programs` must install what it needs."""
    pytest.skip(PREFIX + need)


def get_program(name: str) -> str:
    """Return the path of a program. Leaves the test out if this machine lacks it."""
    return shutil.which(name, path=SEARCH_PATH) or leave_out(name)
