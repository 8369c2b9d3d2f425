"""`python -m service.admin`: the whole console, whose commands stand one subject a file."""

from __future__ import annotations

import importlib

import click

from service.admin.commands import console

SUBJECTS = ("seeds", "clients", "users", "tokens", "revocations", "events", "stats", "doctor", "hashing")


def load_console() -> click.Group:
    """With all of its commands."""
    for subject in SUBJECTS:
        importlib.import_module(f"service.admin.{subject}")
    return console


def main() -> None:
    """Also the command `token-service-admin`."""
    load_console()(prog_name="token-service-admin")


if __name__ == "__main__":
    main()
