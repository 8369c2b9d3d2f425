"""What is asked at the terminal, and what stdin brings where it is none.

asyncio notes the first Ctrl-C down for its own tasks. Whoever waits for an answer here holds all of them up, so while
they wait Ctrl-C is Python's own again, and ends the waiting at once.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click


def ask_yes_or_no(question: str) -> bool:
    """Raises click.Abort where nobody answers, or at Ctrl-C."""
    with _left_at_ctrl_c():
        return click.confirm(question, err=True)


def ask_secret(prompt: str, *, twice: bool) -> str:
    """Not shown while it is typed."""
    with _left_at_ctrl_c():
        return str(click.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True))


def read_stdin() -> str:
    """To its end."""
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
