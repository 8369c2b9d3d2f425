"""The check of a heartbeat, and the time until which the answers of a connection may be used from a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from .connection import Command


class Check(NamedTuple):
    """The command that each heartbeat sends, and the judge of its answer.

    `find_command` returns the command, or None to send TIME instead. `judge` gets the answer or the error. It raises an
    error to end the connection.
    """

    find_command: Callable[[], Command | None]
    judge: Callable[[Any], None]


class Trust:
    """The time by `read_clock` until which cached answers of one connection may be used. 0: not yet, or no longer."""

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until = 0.0


NO_CHECK: Final = Check(lambda: None, lambda _: None)
