"""The output of the console: tables and sentences for people, or one JSON value for programs.

Results go to stdout. Questions, progress and errors go to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, Task, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from service.admin.prompts import ask_yes_or_no
from service.observability.logs import escape_json
from service.protocol.grammar import make_printable

Fields = Mapping[str, Any]

UNBOUNDED: Final = 10_000
"""Width in columns of an output that is no terminal, so that no line is broken or cut off."""


_UNANSWERED: Final = "no answer to the question; nothing was changed. Add --yes to confirm without being asked"


class _Told(click.ClickException):
    def format_message(self) -> str:
        return "\n".join(map(make_printable, self.message.split("\n")))


class CommandRefused(_Told):
    """Error for a command that cannot be carried out, or whose object does not exist."""

    exit_code = 1


class WrongInput(_Told):
    """Error for arguments or files that cannot be used."""

    exit_code = 2


class _CountColumn(MofNCompleteColumn):
    """The number of finished steps. Work that is not counted shows none."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.completed or task.total else Text("")


class Advance(Protocol):
    def __call__(self, done: int, total: int | None = None) -> None: ...


class Output:
    """The output of one command. `store` names the store that it works on, for its questions."""

    def __init__(self, *, as_json: bool, always_yes: bool, store: str = "") -> None:
        self.as_json = as_json
        self.store = store
        self._always_yes = always_yes
        width = None if sys.stdout.isatty() else UNBOUNDED
        self._people = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width)
        self._aside = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)

    def table(self, rows: Sequence[Fields], columns: Mapping[str, str], nothing: str) -> None:
        """Print rows as a table, or all their fields as JSON. Prints the text `nothing` if there are no rows.

        `columns` maps the fields that people see to their headings. If stdout is no terminal, tabs separate columns,
        which suits cut and awk, and is faster.
        """
        if self.as_json:
            self._json(rows)
        elif not rows:
            self.note(nothing)
        elif not sys.stdout.isatty():
            lines = ([_cell(row[name], ", ").plain for name in columns] for row in rows)
            sys.stdout.writelines("\t".join(line) + "\n" for line in (columns.values(), *lines))
            sys.stdout.flush()
        else:
            table = Table(box=None, pad_edge=False, header_style="bold")
            for heading in columns.values():
                table.add_column(heading, overflow="fold")
            for row in rows:
                table.add_row(*(_cell(row[name], "\n") for name in columns))
            self._print(table)

    def facts(self, facts: Fields) -> None:
        """Print the fields of one object, one a line, or unchanged as JSON."""
        if self.as_json:
            self._json(facts)
            return
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in facts.items():
            table.add_row(name.replace("_", " "), _cell(value, "\n"))
        self._print(table)

    def done(self, sentence: str, **facts: Any) -> None:
        """Print what was done: a sentence for people, or `facts` as JSON."""
        if self.as_json:
            self._json(facts)
        else:
            self._people.print(Text("✓ ", style="green") + Text(make_printable(sentence)), soft_wrap=True)

    def line(self, fields: Fields, sentence: str, style: str = "") -> None:
        """Print one entry of a series: a sentence for people, or one line of JSON."""
        if self.as_json:
            self._json(fields)
        else:
            self._people.print(Text(make_printable(sentence), style=style), soft_wrap=True)

    def note(self, sentence: str, style: str = "") -> None:
        """Print a remark to stderr, as a line of JSON if the output is JSON."""
        if self.as_json:
            note = msgspec.json.encode({"note": sentence}).decode()
            sys.stderr.write(escape_json(note) + "\n")
            return
        self._aside.print(Text(make_printable(sentence), style=style), soft_wrap=True)

    def ask(self, question: str) -> None:
        """Ask a question, and return if the answer is yes. Raises CommandRefused if it is no, or there is no answer."""
        if self._always_yes:
            return
        if self.as_json and not sys.stdin.isatty():
            raise CommandRefused(f"{_UNANSWERED}: {question}")
        try:
            agreed = ask_yes_or_no(make_printable(f"On {self.store}: {question}"))
        except click.Abort:
            click.echo(err=True)
            raise CommandRefused(_UNANSWERED) from None
        if not agreed:
            raise CommandRefused("nothing was changed")

    def ask_at_terminal(self, question: str) -> None:
        """Ask a question if stdin is a terminal. A program that calls the console is not asked."""
        if sys.stdin.isatty():
            self.ask(question)

    @contextmanager
    def progress(self, what: str) -> Iterator[Advance]:
        """Show a progress bar on a terminal, and nothing elsewhere."""
        if not sys.stderr.isatty():
            yield lambda done, total=None: None
            return
        columns = (SpinnerColumn(), "{task.description}", BarColumn(), _CountColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._aside, transient=True) as bars:
            task = bars.add_task(what, total=None)

            def advance(done: int, total: int | None = None) -> None:
                bars.update(task, completed=done, total=total)

            yield advance

    def _print(self, table: Table) -> None:
        """Print a table without the blanks that fill up its last column."""
        with self._people.capture() as printed:
            self._people.print(table)
        sys.stdout.write("".join(line.rstrip() + "\n" for line in printed.get().splitlines()))
        sys.stdout.flush()

    def _json(self, value: Any) -> None:
        sys.stdout.write(escape_json(msgspec.json.encode(value).decode()) + "\n")
        sys.stdout.flush()


def _cell(value: Any, separator: str) -> Text:
    if isinstance(value, list | tuple):
        return Text(separator.join(make_printable(str(item)) for item in value) or "-")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    return Text("-" if value is None or value == "" else make_printable(str(value)))
