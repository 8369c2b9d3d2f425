"""The decorator that makes a console command: its common options, its context and its exit status.

Exit status 0: done. 1: refused, or not found. 2: wrong usage, or a bad file.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from service import __version__
from service.admin.context import AdminContext, explaining, open_context
from service.admin.output import CommandRefused, Output, WrongInput
from service.admin.prompts import ask_secret, read_stdin
from service.observability.logs import configure_logging, escape_json

Work = Callable[..., Awaitable[None]]


MODULE_OF: Final = {
    "client": "clients",
    "doctor": "doctor",
    "events": "events",
    "hash-secret": "hashing",
    "realm": "realms",
    "revoke-all": "revocations",
    "seed": "seeds",
    "session": "sessions",
    "stats": "stats",
    "token": "tokens",
    "user": "users",
}
"""The module of `commands` that adds each command to the console."""


class Console(click.Group):
    """The root of all commands. With `--json` its errors are JSON as well.

    A module is imported when its command is named, or when the help lists all commands. `doctor` and `seed` need
    libraries that take longer than all of another command.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return list(MODULE_OF)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, or None if there is none of this name."""
        if cmd_name in MODULE_OF:
            importlib.import_module(f"service.admin.commands.{MODULE_OF[cmd_name]}")
        return super().get_command(ctx, cmd_name)

    def main(self, args: Sequence[str] | None = None, *others: Any, **extra: Any) -> Any:
        """Run the command that the arguments name, and exit with its status."""
        words = sys.argv[1:] if args is None else list(args)
        try:
            sys.exit(super().main(words, *others, **extra | {"standalone_mode": False}))
        except click.Abort:
            error: click.ClickException = CommandRefused("Interrupted. Completed steps were not rolled back.")
        except click.ClickException as refusal:
            error = refusal
        if "--json" in words:
            told = {"error": error.format_message(), "status": error.exit_code}
            click.echo(escape_json(msgspec.json.encode(told).decode()), err=True)
        else:
            error.show()
        sys.exit(error.exit_code)


@click.group(cls=Console, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="token-service %(version)s")
def console() -> None:
    """Manage the token service: clients, users, sessions, and the state of the store.

    The console works on the store of REDIS_URL, with the same settings as the service. Without REDIS_URL it works on
    the embedded store, which must be running.

    Exit status 0: done. 1: refused, or not found. 2: wrong usage, or a bad file.
    """
    is_debugging = os.environ.get("LOG_LEVEL", "").lower() == "debug"
    configure_logging("debug" if is_debugging else "warning", "console")
    if not is_debugging:
        logging.getLogger("service.redis_client").setLevel(logging.ERROR)  # each command reports an outage itself


def make_common_options(*, asks: bool) -> list[click.Parameter]:
    """Return the options of every command. The help shows --yes if the command asks questions."""
    return [
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON, for programs. Errors are JSON as well."),
        click.Option(["--yes"], is_flag=True, hidden=not asks, help="Confirm without being asked."),
    ]


def command(
    group: click.Group, name: str, *, asks: bool = False, examples: Sequence[str] = (), **settings: Any
) -> Callable[[Work], click.Command]:
    """Return a decorator that adds a coroutine to a group as a command with the options --json and --yes.

    The coroutine is called with the context, the output and its own parameters. A caller of the console may pass
    another function than `open_context` as the object of click's context. The help ends with the examples, which are
    the words after the name of the console. `settings` are further ones of click's command.
    """

    def decorate(work: Work) -> click.Command:
        @group.command(name, epilog=format_examples(examples), **settings)
        @functools.wraps(work)
        def run(as_json: bool, yes: bool, **parameters: Any) -> None:
            with explaining():
                asyncio.run(_run_in_context(work, Output(as_json=as_json, always_yes=yes), parameters))

        run.params += make_common_options(asks=asks)
        return run

    return decorate


def format_examples(examples: Sequence[str]) -> str | None:
    """Return the examples as a paragraph whose lines click does not join."""
    if not examples:
        return None
    return "\b\nExamples:\n" + "\n".join(f"  ./scripts/admin {example}" for example in examples)


async def _run_in_context(work: Work, output: Output, parameters: dict[str, Any]) -> None:
    make_context: Callable[[], AdminContext] = click.get_current_context().obj or open_context
    context = make_context()
    context.open()
    output.store = context.store_name
    context.on_wait = lambda: output.note("Waiting for a seed, or another change, to be finished …")
    if sys.stderr.isatty() and not output.as_json:
        output.note(f"on {context.store_name}", style="dim")
    try:
        await work(context, output, **parameters)
    finally:
        await context.close()


def read_secret(prompt: str, file: str | None, *, what: str = "secret", twice: bool = False) -> str:
    """Read a secret of one line: from the file, from the terminal without echo, or else from stdin.

    `what` names the secret in messages.
    """
    if file is not None:
        return _first_line(_read_file(file), name_file(file), what)
    if sys.stdin.isatty():
        return ask_secret(prompt, twice=twice)
    return _first_line(read_stdin(), "stdin", what)


def read_lines(file: str) -> list[str]:
    """Read the secrets in a file, one a line. Raises WrongInput if there is none, or a line is empty."""
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
    """Return the name of a file for messages."""
    return "stdin" if file == "-" else file


def _first_line(text: str, place: str, what: str) -> str:
    lines = text.splitlines()
    if len(lines) != 1 or not lines[0]:
        hint = "Type it at a terminal, or pipe it in" if place == "stdin" else "The file has it in its only line"
        raise WrongInput(f"{place}: expected one line with the {what}. {hint}")
    return lines[0]


class Parsed(click.ParamType[Any]):
    """A parameter type whose function parses the text. The function raises ValueError with what it expected."""

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
