"""The end of a process when its parent process ends, even if the parent is killed with SIGKILL.

As a script, `parent_death.py <parent's process id> <command> …` runs a command that ends with this parent.
The module imports only the standard library, so the script runs without this package.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Make the kernel send this process SIGTERM when its parent ends.

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


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
