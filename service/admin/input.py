"""Secrets that the console reads from a terminal, a file or a pipe."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from service.admin.output import WrongInput, ending_at_ctrl_c


def read_secret(prompt: str, file: str | None, *, what: str = "secret", twice: bool = False) -> str:
    """Read a secret of one line: from the file, from the terminal without echo, or else from stdin.

    `what` names the secret in messages.
    """
    if file is None and sys.stdin.isatty():
        with ending_at_ctrl_c():
            return str(click.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True))
    place = name_file(file or "-")
    lines = _read_file(file or "-").splitlines()
    if len(lines) != 1 or not lines[0]:
        raise WrongInput(f"{place}: expected one line with the {what}")
    return lines[0]


def read_lines(file: str) -> list[str]:
    """Read the secrets in a file, one a line. Raises WrongInput if there is none, or a line is empty."""
    lines = _read_file(file).splitlines()
    if not lines or not all(lines):
        raise WrongInput(f"{name_file(file)}: expected one secret per line and no empty lines")
    return lines


def name_file(file: str) -> str:
    """Return the name of a file for messages."""
    return "stdin" if file == "-" else file


def _read_file(file: str) -> str:
    try:
        if file != "-":
            return Path(file).read_text(encoding="utf-8")
        with ending_at_ctrl_c():
            return sys.stdin.read()
    except OSError as error:
        raise WrongInput(f"{name_file(file)} cannot be read: {error.strerror}") from None
    except UnicodeError:
        raise WrongInput(f"{name_file(file)}: expected text in UTF-8") from None
