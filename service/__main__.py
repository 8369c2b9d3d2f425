"""The start of the service: `python -m service [arguments for uvicorn…]`."""

import sys

from service.system.interrupts import exiting_at_interrupt

if __name__ == "__main__":
    with exiting_at_interrupt():
        from service.serving.supervisor import serve  # takes most of the time of a start

        sys.exit(serve(sys.argv[1:]))
