"""Calls of the kernel and the C library about this process: its end with its parent, cores, priority and memory.

As a script, `process.py <parent's process id> <command> …` runs a command that ends with this parent.
The module imports only the standard library, and little of it, so the script runs without this package and at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

LOWER_BY = 10
"""The niceness that `lower_thread_priority` adds. The thread then gets a tenth of the time of a busy normal thread."""
LEAST_PRIORITY = 19
"""The niceness of the lowest priority. Beside an import with half of it, a refresh had three times the p99."""

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
"""Parameters of `mallopt`, from malloc.h."""
_HEAP_BLOCK_BYTES = 32 << 20
"""Blocks of up to this size are in the heap: glibc allows no more. Larger ones are mapped and unmapped each time."""
_KEPT_BYTES = 1 << 30


def die_with_parent(parent_pid: int) -> None:
    """Make the kernel send this process SIGTERM when its parent ends, even if the parent is killed with SIGKILL.

    Linux watches the thread that started this process. That thread must live as long as this process may.
    Raises OSError if the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    # If the parent ended before the call of prctl, the kernel sends no signal.
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGTERM)


def die_with_supervisor() -> None:
    """Make a worker process end with its supervisor. No effect in the supervisor's own process."""
    import multiprocessing  # imported here, so that the start of the embedded server does not wait for it

    supervisor = multiprocessing.parent_process()
    if supervisor is not None and supervisor.pid is not None:
        die_with_parent(supervisor.pid)


def count_usable_cores() -> int:
    """Return the number of processor cores on which this process may run."""
    return len(os.sched_getaffinity(0))


def find_memory_limit(root: str = "") -> int | None:
    """Return the limit of memory of this process's control group (version 2) in bytes, or None."""
    from pathlib import Path

    try:
        group = Path(f"{root}/proc/self/cgroup").read_text().rpartition("0::")[2].strip()
        return int(Path(f"{root}/sys/fs/cgroup{group}/memory.max").read_text())
    except (OSError, ValueError):  # the word `max` stands for no limit
        return None


def lower_thread_priority(by: int = LOWER_BY) -> None:
    """Let the calling thread give way to threads of normal priority. It still has all time that they leave.

    No effect if a sandbox forbids it. A thread cannot raise its priority again without a privilege.
    """
    with contextlib.suppress(OSError):
        os.nice(by)


def configure_malloc() -> None:
    """Limit glibc to one malloc arena, which keeps freed memory until `trim_heap`.

    Hashes of passwords take 19 MiB each. Without this call a worker had 153 MiB after a storm of logins.
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


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
