"""A process that must not outlive the one that started it, not even after kill -9.

Run as a script it starts a command under that rule: `parent_death.py <parent's process id> <command> …`.
For that it needs the standard library only, and none of this package.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """From now on the end of the parent sends us SIGTERM (on Linux; elsewhere nothing happens).

    Linux means the parent's thread: whoever starts us must do so from a thread that lives as long as we may.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    # The parent may have gone before we asked; then nobody will tell us.
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGTERM)


def die_with_supervisor() -> None:
    """For the application in a worker process; in the supervisor's own process nothing happens."""
    import multiprocessing  # not at the top: the embedded server's start need not wait for it

    supervisor = multiprocessing.parent_process()
    if supervisor is not None and supervisor.pid is not None:
        die_with_parent(supervisor.pid)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
