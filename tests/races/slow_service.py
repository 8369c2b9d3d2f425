"""The service with the slow time of the tests: `python -m tests.races.slow_service`.

A burst of requests would reach the limits of the service on a slow machine. uvloop has a clock of its own, so the event
loop is that of the standard library.
"""

import sys

import service.app  # noqa: F401 - its modules are to be there when their clock is replaced
from service.serving.supervisor import serve
from tests.support.loop_time import moving_loop_time

if __name__ == "__main__":
    with moving_loop_time():
        sys.exit(serve(["--loop", "asyncio", *sys.argv[1:]]))
