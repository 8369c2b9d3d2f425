"""A silent end by Ctrl-C during imports: `python -m service.system.interrupts MODULE [ARGUMENT…]` runs a module."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit status of a program that Ctrl-C has ended, as shells report it."""


def exit_at_interrupt() -> None:
    """End this process silently at SIGINT, with status 130, until another handler is set.

    The starting process may have blocked the signal, because the interpreter's own start would print a traceback.
    """
    signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(INTERRUPTED))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


@contextmanager
def exiting_at_interrupt() -> Iterator[None]:
    """Let a program end silently at SIGINT. The program may set a handler of its own meanwhile."""
    exit_at_interrupt()
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        exit_at_interrupt()


if __name__ == "__main__":
    with exiting_at_interrupt():
        runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
