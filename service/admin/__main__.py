"""`python -m service.admin`: the whole console, whose commands stand one subject a file."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TextIO

import click

from service.admin.command import console

SUBJECTS = ("seeds", "clients", "users", "tokens", "revocations", "events", "stats", "doctor", "hashing")


def load_console() -> click.Group:
    """With all of its commands."""
    for subject in SUBJECTS:
        importlib.import_module(f"service.admin.commands.{subject}")
    return console


def main() -> None:
    """Also the command `token-service-admin`. Without a stdin there is nobody to ask; without a stdout, no answer."""
    streams: dict[str, TextIO | None] = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}
    if streams["stderr"] is None:
        sys.stderr = click.open_file(os.devnull, "w")
    if streams["stdin"] is None:
        sys.stdin = click.open_file(os.devnull)
    if streams["stdout"] is None:
        sys.exit("Error: stdout is closed, where the answer should go; nothing was done")
    load_console()(prog_name="token-service-admin")


if __name__ == "__main__":
    main()
