"""The start of the console: `python -m service.admin`. Each module in `commands` has one subject."""

from __future__ import annotations

import signal
from typing import Any

from service.admin.command import console


def _interrupt(*_: Any) -> None:
    """End a blocking read at Ctrl-C. asyncio's own handler would cancel its task, which waits for the read."""
    raise KeyboardInterrupt


def main() -> None:
    """Run the console, which is also the command `token-service-admin`."""
    signal.signal(signal.SIGINT, _interrupt)
    console(prog_name="token-service-admin")


if __name__ == "__main__":
    main()
