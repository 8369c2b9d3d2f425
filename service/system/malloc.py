"""Calls of glibc that limit the memory which threads keep. They have no effect with other C libraries."""

from __future__ import annotations

import ctypes
from typing import Final

_M_ARENA_MAX: Final = -8
"""The parameter `M_ARENA_MAX` of `mallopt`, from malloc.h."""


_libc: Final = ctypes.CDLL(None)


def limit_arenas() -> None:
    """Limit glibc to one malloc arena: per-thread arenas never return memory. No effect with other C libraries."""
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def trim_heap() -> None:
    """Return free memory of the heap to the system. No effect with other C libraries than glibc."""
    malloc_trim = getattr(_libc, "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
