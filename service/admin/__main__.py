"""The start of the console: `python -m service.admin`. Each module in `commands` has one subject."""

from __future__ import annotations

import gc
import signal

from service.system.interrupts import exiting_at_interrupt


def main() -> None:
    """Run the console, which is also the command `token-service-admin`."""
    with exiting_at_interrupt():
        # Collections of garbage during the imports and at the end would take a sixth of a short command's time.
        gc.disable()
        from service.admin.command import console  # takes most of the time of a start

        gc.freeze()
        gc.enable()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        console(prog_name="token-service-admin")


if __name__ == "__main__":
    main()
