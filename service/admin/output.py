"""The output of the console: tables and sentences for people, or one JSON value for programs.

Results go to stdout. Questions, progress and errors go to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TextIO

import click
import msgspec

from service.admin.prompts import ask_yes_or_no
from service.observability.logs import escape_json
from service.protocol.grammar import make_printable

if TYPE_CHECKING:
    from service.admin.printer import Printer

Fields = Mapping[str, Any]
Advance = Callable[..., None]
"""Shows how many steps are done, and of how many if that is known."""

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


class Output:
    """The output of one command. `store` names the store that it works on, for its questions."""

    def __init__(self, *, as_json: bool, always_yes: bool, store: str = "") -> None:
        self.as_json = as_json
        self.store = store
        self._always_yes = always_yes

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
            lines = ([_cell(row[name], ", ") for name in columns] for row in rows)
            sys.stdout.writelines("\t".join(line) + "\n" for line in (columns.values(), *lines))
            sys.stdout.flush()
        else:
            cells = ([_cell(row[name], "\n") for name in columns] for row in rows)
            self._stdout.print_table(columns.values(), cells)

    def facts(self, facts: Fields) -> None:
        """Print the fields of one object, one a line, or unchanged as JSON."""
        if self.as_json:
            self._json(facts)
        else:
            self._stdout.print_facts((name.replace("_", " "), _cell(value, "\n")) for name, value in facts.items())

    def done(self, sentence: str, **facts: Any) -> None:
        """Print what was done: a sentence for people, or `facts` as JSON."""
        if self.as_json:
            self._json(facts)
        else:
            self._print(("✓ ", "green"), (make_printable(sentence), ""))

    def line(self, fields: Fields, sentence: str, style: str = "") -> None:
        """Print one entry of a series: a sentence for people, or one line of JSON."""
        if self.as_json:
            self._json(fields)
        else:
            self._print((make_printable(sentence), style))

    def note(self, sentence: str, style: str = "") -> None:
        """Print a remark to stderr, as a line of JSON if the output is JSON."""
        if self.as_json:
            note = msgspec.json.encode({"note": sentence}).decode()
            _write_line(sys.stderr, escape_json(note))
        elif sys.stderr.isatty():
            self._stderr.print_line((make_printable(sentence), style))
        else:
            _write_line(sys.stderr, make_printable(sentence))

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
        with self._stderr.showing_progress(what) as advance:
            yield advance

    @cached_property
    def _stdout(self) -> Printer:
        return _make_printer(sys.stdout, None if sys.stdout.isatty() else UNBOUNDED)

    @cached_property
    def _stderr(self) -> Printer:
        return _make_printer(sys.stderr, None)

    def _print(self, *parts: tuple[str, str]) -> None:
        """Print a line of texts, each with its style."""
        if sys.stdout.isatty():
            self._stdout.print_line(*parts)
        else:
            _write_line(sys.stdout, "".join(text for text, _ in parts))

    def _json(self, value: Any) -> None:
        _write_line(sys.stdout, escape_json(msgspec.json.encode(value).decode()))


def _make_printer(stream: TextIO, width: int | None) -> Printer:
    from service.admin.printer import Printer  # imported here, because it imports rich

    return Printer(stream, width)


def _write_line(stream: TextIO, line: str) -> None:
    stream.write(f"{line}\n")
    stream.flush()


def _cell(value: Any, separator: str) -> str:
    if isinstance(value, list | tuple):
        return separator.join(make_printable(str(item)) for item in value) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else make_printable(str(value))
