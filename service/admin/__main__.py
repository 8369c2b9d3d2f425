"""The start of the console: `python -m service.admin`. Each module in `commands` has one subject."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import click

from service.admin.command import console


def main() -> None:
    """Run the console, which is also the command `token-service-admin`.

    A closed stdin or stderr is replaced by the null device, so that every question fails. If stdout is closed, the
    program ends at once, since it could not print its result.
    """
    streams: dict[str, TextIO | None] = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}
    if streams["stderr"] is None:
        sys.stderr = click.open_file(os.devnull, "w")
    if streams["stdin"] is None:
        sys.stdin = click.open_file(os.devnull)
    if streams["stdout"] is None:
        sys.exit("Error: stdout is closed, where the answer should go; nothing was done")
    console(prog_name="token-service-admin")


if __name__ == "__main__":
    main()
