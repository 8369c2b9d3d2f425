"""Calls of glibc that limit the memory which threads keep. They have no effect with other C libraries.

Hashes of passwords take 19 MiB each. Without these calls a worker had 153 MiB after a storm of logins.
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""Parameters of `mallopt`, from malloc.h."""

_HEAP_BLOCK_BYTES: Final = 32 << 20
"""Blocks of up to this size are in the heap: glibc allows no more. Larger ones are mapped and unmapped each time."""

_KEPT_BYTES: Final = 1 << 30


def configure_malloc() -> None:
    """Limit glibc to one malloc arena, which keeps freed memory until `trim_heap`.

    Arenas of threads do not return all of their memory. An arena that exists stays, and later threads use it, so call
    this before the first thread starts. By default glibc returns the memory of two hashes that end together, and the
    page faults of the next hash take half as long as the hash.
    """
    _call_glibc("mallopt", _M_ARENA_MAX, 1)
    _call_glibc("mallopt", _M_MMAP_THRESHOLD, _HEAP_BLOCK_BYTES)
    _call_glibc("mallopt", _M_TRIM_THRESHOLD, _KEPT_BYTES)


def trim_heap() -> None:
    """Return free memory of the heap to the system. No effect with other C libraries than glibc."""
    _call_glibc("malloc_trim", 0)


def _call_glibc(name: str, *arguments: int) -> None:
    """Call a function that only glibc has, if this process has it."""
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)
