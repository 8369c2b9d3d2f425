"""The function by which a command moves its progress bar."""

from __future__ import annotations

from typing import Protocol


class Advance(Protocol):
    """Show how many steps are done, and of how many if that is known."""

    def __call__(self, done: int, total: int | None = None) -> None: ...
