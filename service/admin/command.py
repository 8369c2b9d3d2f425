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
from typing import Any, Final

import click

from service import __version__
from service.admin.context import AdminContext, explaining, open_context
from service.admin.output import CommandRefused, Output, to_json
from service.observability.logs import configure_logging

Work = Callable[..., Awaitable[None]]

COMMANDS: Final = (
    *("client", "doctor", "events", "hash-secret", "realm", "revoke-all"),
    *("seed", "session", "stats", "token", "user"),
)
"""The commands and groups, each in the module of `commands` with its name."""


class Console(click.Group):
    """The root of all commands. With `--json` its errors are JSON as well.

    A module is imported when its command is named, or when the help lists all commands. `doctor` and `seed` need
    libraries that take longer than all of another command.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, or None if there is none of this name."""
        if cmd_name in COMMANDS:
            importlib.import_module(f"service.admin.commands.{cmd_name.replace('-', '_')}")
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
            click.echo(to_json({"error": error.format_message(), "status": error.exit_code}), err=True)
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


COMMON_OPTIONS: Final[tuple[click.Parameter, ...]] = (
    click.Option(["--json", "as_json"], is_flag=True, help="Print JSON, for programs. Errors are JSON as well."),
    click.Option(["--yes"], is_flag=True, help="Confirm without being asked."),
)


def command(group: click.Group, name: str, **settings: Any) -> Callable[[Work], click.Command]:
    """Return a decorator that adds a coroutine to a group as a command with the options --json and --yes.

    The coroutine is called with the context, the output and its own parameters. A caller of the console may pass
    another function than `open_context` as the object of click's context. `settings` are further ones of click's
    command.
    """

    def decorate(work: Work) -> click.Command:
        @group.command(name, **settings)
        @functools.wraps(work)
        def run(as_json: bool, yes: bool, **parameters: Any) -> None:
            with explaining():
                asyncio.run(_run_in_context(work, Output(as_json=as_json, always_yes=yes), parameters))

        run.params += COMMON_OPTIONS
        return run

    return decorate


async def _run_in_context(work: Work, output: Output, parameters: dict[str, Any]) -> None:
    make_context: Callable[[], AdminContext] = click.get_current_context().obj or open_context
    context = make_context()
    context.open()
    output.store = context.store_name
    context.on_wait = lambda: output.note("Waiting for a seed, or another change, to be finished …")
    try:
        await work(context, output, **parameters)
    finally:
        await context.close()


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
