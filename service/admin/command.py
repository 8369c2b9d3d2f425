"""How a command is made: its common options, the desk that it works at, and how it ends.

Exit status 0: done. 1: refused, or not found. 2: wrong usage, or a bad file.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import click

from service.admin.context import AdminContext, explaining, open_context
from service.admin.output import Output, WrongInput
from service.admin.prompts import ask_secret, read_stdin
from service.observability.logs import configure_logging

COMMON: Final = (
    click.Option(["--json", "as_json"], is_flag=True, help="Print JSON, for programs."),
    click.Option(["--yes"], is_flag=True, help="Answer every question with yes."),
)

Work = Callable[..., Awaitable[None]]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def console() -> None:
    """The token service's console: clients, users, sessions, and the state of the store.

    It works on the store of REDIS_URL, with the same settings as the service, or on the embedded store while it runs.
    Exit status 0: done. 1: refused, or not found. 2: wrong usage, or a bad file.
    """
    is_debugging = os.environ.get("LOG_LEVEL", "").lower() == "debug"
    configure_logging("debug" if is_debugging else "warning", "console")


def command(group: click.Group, name: str) -> Callable[[Work], click.Command]:
    """The decorated coroutine gets the desk, the output and its own parameters; each command takes --json and --yes."""

    def decorate(work: Work) -> click.Command:
        @group.command(name)
        @functools.wraps(work)
        def run(as_json: bool, yes: bool, **parameters: Any) -> None:
            with explaining():
                asyncio.run(_run_in_context(work, Output(as_json=as_json, always_yes=yes), parameters))

        run.params += COMMON
        return run

    return decorate


async def _run_in_context(work: Work, output: Output, parameters: dict[str, Any]) -> None:
    context: AdminContext = open_context()
    context.open()
    try:
        await work(context, output, **parameters)
    finally:
        await context.close()


def read_secret(prompt: str, file: str | None, *, twice: bool = False) -> str:
    """One line: from the file, from the terminal without showing it, or from whatever stdin is."""
    if file is not None:
        return _first_line(_read_file(file), name_file(file))
    if sys.stdin.isatty():
        return ask_secret(prompt, twice=twice)
    return _first_line(read_stdin(), "stdin")


def read_lines(file: str) -> list[str]:
    """Those of a file of secrets, one a line."""
    lines = _read_file(file).splitlines()
    if not lines or not all(lines):
        raise WrongInput(f"{name_file(file)}: expected one secret a line, and no empty lines")
    return lines


def _read_file(file: str) -> str:
    try:
        return read_stdin() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise WrongInput(f"{name_file(file)} cannot be read: {error.strerror}") from None
    except UnicodeError:
        raise WrongInput(f"{name_file(file)}: expected text in UTF-8") from None


def name_file(file: str) -> str:
    """In a message."""
    return "stdin" if file == "-" else file


def _first_line(text: str, place: str) -> str:
    lines = text.splitlines()
    if len(lines) != 1 or not lines[0]:
        raise WrongInput(f"{place}: expected one line with the secret")
    return lines[0]


class Parsed(click.ParamType[Any]):
    """A parameter that a function reads, which raises ValueError with what it expected."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as expected:
            self.fail(f"{value!r}: expected {expected}", param, ctx)
