"""The decorator that makes a console command: its common options, its context and its exit status.

Exit status 0: success. 1: rejected, or not found. 2: wrong usage, or an invalid file. 130: interrupted by Ctrl-C.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import os
import pkgutil
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

import click

from service import __version__
from service.admin import commands
from service.admin.context import AdminContext, open_context
from service.admin.output import CommandRefused, Interrupted, Output, WrongInput, is_dumb_terminal, to_json
from service.config.reading import BadSettings
from service.observability.logs import configure_logging
from service.redis_client.deadline import StoreUnavailable
from service.registry.editor import ChangeRefused
from service.registry.seed_file.entries import BadSeed

log = logging.getLogger("service.admin")

Work = Callable[..., Coroutine[Any, Any, None]]
Result = TypeVar("Result")

_JSON: Final = "Print JSON. Errors and warnings are printed as JSON too."
_STATUSES: Final = "Exit status: 0 success, 1 failure, 2 wrong input, 130 Ctrl-C."


class Console(click.Group):
    """The root of all commands, each in the module of `commands` that has its name. With `--json` errors are JSON, too.

    A module is imported when its command is named, or when the help lists all commands. A library whose import takes
    longer than any other command is imported in the function that needs it.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(commands.__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name, or None. Before that, click needs all names to suggest a similar one."""
        names = self.list_commands(ctx)
        for name in [cmd_name] if cmd_name in names else names:
            importlib.import_module(f"{commands.__name__}.{name.replace('-', '_')}")
        return super().get_command(ctx, cmd_name)

    def main(self, args: Sequence[str] | None = None, *others: Any, **extra: Any) -> Any:
        """Run the command that the arguments name, and exit with its status."""
        words = sys.argv[1:] if args is None else list(args)
        try:
            sys.exit(super().main(words, *others, **extra | {"standalone_mode": False}))
        except Exception as problem:
            error = explain(problem)
        if "--json" in words:
            click.echo(to_json({"error": error.format_message(), "status": error.exit_code}), err=True)
        else:
            error.show()
        sys.exit(error.exit_code)


@click.group(cls=Console, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="token-service %(version)s")
def console() -> None:
    """Manage the token service: its clients, users and sessions, and the state of Redis.

    All commands use the Redis of REDIS_URL, with the same settings as the service. Without REDIS_URL, they use the
    embedded store, which must be running.

    Exit status 0: success. 1: rejected, or not found. 2: wrong usage, or an invalid file. 130: interrupted by Ctrl-C.
    """
    if os.environ.get("NO_COLOR") or is_dumb_terminal():
        click.get_current_context().color = False
    is_debugging = os.environ.get("LOG_LEVEL", "").lower() == "debug"
    configure_logging("debug" if is_debugging else "warning", "console")
    if not is_debugging:
        logging.getLogger("service.redis_client").setLevel(logging.ERROR)  # each command reports an outage itself


def explain(problem: Exception) -> click.ClickException:
    """Return the message and the exit status of a command that ended with this exception."""
    match problem:
        case click.ClickException():
            return problem
        case click.Abort():
            return Interrupted("Interrupted. Completed steps were not rolled back.")
        case BadSettings():
            return WrongInput("\n".join(problem.mistakes))
        case BadSeed():
            return WrongInput("\n".join((f"errors in {problem.file}:", *problem.mistakes)))
        case UnicodeEncodeError():
            return WrongInput("the arguments must be UTF-8")
        case ChangeRefused():
            return CommandRefused(str(problem))
        case StoreUnavailable():
            return CommandRefused(f"Redis is unavailable or cannot serve requests: {problem}")
    log.debug("unforeseen", exc_info=problem)
    return CommandRefused(f"unexpected error ({type(problem).__name__}): {problem}; LOG_LEVEL=debug shows more")


def command(
    group: click.Group, name: str, *, examples: Sequence[str], needs_store: bool = True, asks: bool = False, **more: Any
) -> Callable[[Work], click.Command]:
    """Return a decorator that adds a coroutine to a group as a command with the options --json and --yes.

    The coroutine is called with the context, the output and its own parameters. Without `needs_store` there is no
    context. Scripts may pass --yes to any command; the help shows it where `asks` is true. A caller of the CLI may pass
    another function than `open_context` as the object of click's context. The help ends with the examples, which are
    the words after the name of the CLI. `more` are settings of click's command.
    """
    # click does not join the lines of a paragraph that begins with this character.
    epilog = f"{_STATUSES}\n\n\b\nExamples:\n" + "\n".join(f"  ./scripts/admin {example}" for example in examples)

    def decorate(work: Work) -> click.Command:
        @group.command(name, epilog=epilog, **more)
        @functools.wraps(work)
        def run(as_json: bool, yes: bool, **parameters: Any) -> None:
            output = Output(as_json=as_json, always_yes=yes)
            asyncio.run(_run_in_context(work, output, parameters) if needs_store else work(output, **parameters))

        run.params.append(click.Option(["--json", "as_json"], is_flag=True, help=_JSON))
        run.params.append(click.Option(["--yes"], is_flag=True, hidden=not asks, help="Skip the confirmation prompt."))
        return run

    return decorate


asking_command = functools.partial(command, asks=True)


async def _run_in_context(work: Work, output: Output, parameters: dict[str, Any]) -> None:
    make_context: Callable[[], AdminContext] = click.get_current_context().obj or open_context
    async with make_context() as context:
        output.store = context.settings.store_name
        context.on_wait = lambda: output.note("Waiting for a seed or another change to finish …")
        await work(context, output, **parameters)


def parsed_by(parse: Callable[[str], Result]) -> Callable[[str], Result]:
    """Return a type of a parameter. Its parser raises ValueError with what it expected."""

    def convert(text: str) -> Result:
        try:
            return parse(text)
        except ValueError as expected:
            raise click.BadParameter(f"{text!r}: expected {expected}") from None

    return convert
