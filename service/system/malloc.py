"""Calls of glibc that keep the memory of threads small. Other C libraries have no such functions."""

from __future__ import annotations

import ctypes
from typing import Final

_M_ARENA_MAX: Final = -8
"""`M_ARENA_MAX` in malloc.h."""


_libc: Final = ctypes.CDLL(None)


def limit_arenas() -> None:
    """Else each thread has one of its own, of which nothing ever goes back. Of glibc; others have no such function."""
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def trim_heap() -> None:
    malloc_trim = getattr(_libc, "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
