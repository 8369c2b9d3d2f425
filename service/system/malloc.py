"""Calls of glibc that limit the memory which threads keep. They have no effect with other C libraries.

Hashes of passwords take 19 MiB each. With these calls a worker has 76 MiB after a storm of logins instead of 153 MiB.
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_ARENA_MAX: Final = -8
"""The parameter `M_ARENA_MAX` of `mallopt`, from malloc.h."""


def limit_arenas() -> None:
    """Limit glibc to one malloc arena: per-thread arenas never return memory. No effect with other C libraries."""
    _call_glibc("mallopt", _M_ARENA_MAX, 1)


def trim_heap() -> None:
    """Return free memory of the heap to the system. No effect with other C libraries than glibc."""
    _call_glibc("malloc_trim", 0)


def _call_glibc(name: str, *arguments: int) -> None:
    """Call a function that only glibc has, if this process has it."""
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)
