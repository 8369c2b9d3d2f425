"""Questions at the terminal, and reading of stdin.

asyncio turns the first Ctrl-C into a cancellation of its main task. A blocking read holds up all tasks, so the
cancellation would have no effect. So Ctrl-C has Python's own effect during a read, and ends the read at once.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click


def ask_yes_or_no(question: str) -> bool:
    """Return the answer to a question. Raises click.Abort at the end of input, or at Ctrl-C."""
    with _left_at_ctrl_c():
        return click.confirm(question, err=True)


def ask_secret(prompt: str, *, twice: bool) -> str:
    """Return a secret that is typed without echo."""
    with _left_at_ctrl_c():
        return str(click.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True))


def read_stdin() -> str:
    """Return all of stdin. Raises KeyboardInterrupt at Ctrl-C."""
    with _left_at_ctrl_c():
        return sys.stdin.read()


@contextmanager
def _left_at_ctrl_c() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
