"""The output of the console: one plain value, which programs read as JSON and people as lines.

Results go to stdout. Questions, progress and errors go to stderr.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec

from service.observability.logs import escape_json
from service.protocol.grammar import make_printable
from service.system.interrupts import INTERRUPTED

Fields = Mapping[str, Any]
Line = tuple[str, str]
"""A text for people and its colour. The colour is empty for plain text."""

Advance = Callable[..., None]
"""Shows how many steps are done, and of how many if that is known."""

NOTE_SECONDS: Final = 5
"""The interval of the notes about progress if stderr is not a terminal."""

_UNANSWERED: Final = "nothing was changed, because this needs confirmation. Use --yes to skip the prompt"
_BACK_AND_CLEAR: Final = "\r\x1b[K"


class _Told(click.ClickException):
    def format_message(self) -> str:
        return "\n".join(map(make_printable, self.message.split("\n")))


class CommandRefused(_Told):
    """Error for a command that cannot be carried out, or whose object does not exist."""

    exit_code = 1


class Interrupted(_Told):
    """Error for a command that Ctrl-C has ended."""

    exit_code = INTERRUPTED


class WrongInput(_Told):
    """Error for arguments or files that cannot be used."""

    exit_code = 2


class Output:
    """The output of one command. `store` names the store that it works on, for its questions."""

    def __init__(self, *, as_json: bool, always_yes: bool) -> None:
        self.as_json = as_json
        self.store = ""
        self._always_yes = always_yes

    def show(self, value: Any, lines: Iterable[Line]) -> None:
        """Print the value as JSON, or the lines that tell it to people."""
        if self.as_json:
            click.echo(to_json(value))
        elif texts := [_paint(*line) for line in lines]:
            click.echo("\n".join(texts))

    def table(self, rows: Sequence[Fields], columns: Sequence[str], nothing: str) -> None:
        """Print some fields of the rows as a table, or all as JSON. The text `nothing` stands for no rows."""
        self.show(rows, list_table(rows, columns))
        if not (rows or self.as_json):
            self.note(nothing)

    def facts(self, facts: Fields) -> None:
        """Print the fields of one object."""
        self.show(facts, list_facts(facts))

    def done(self, sentence: str, **facts: Any) -> None:
        """Print what was done: a sentence for people, or `facts` as JSON."""
        self.show(facts, [(f"✓ {sentence}", "green")])

    def note(self, sentence: str, colour: str = "") -> None:
        """Print a remark to stderr."""
        click.echo(to_json({"note": sentence}) if self.as_json else _paint(sentence, colour), err=True)

    def warn(self, warnings: Iterable[str]) -> None:
        for warning in warnings:
            self.note(f"warning: {warning}", "yellow")

    def ask(self, question: str) -> None:
        """Ask a question, and return if the answer is yes. Raises CommandRefused if it is no, or there is no answer."""
        if self._always_yes:
            return
        if self.as_json and not sys.stdin.isatty():
            raise CommandRefused(f"{_UNANSWERED}: {question}")
        try:
            with ending_at_ctrl_c():
                agreed = click.confirm(make_printable(f"On {self.store}: {question}"), err=True)
        except click.Abort as abort:
            if isinstance(abort.__context__, KeyboardInterrupt):
                raise
            click.echo(err=True)
            raise CommandRefused(_UNANSWERED) from None
        if not agreed:
            raise CommandRefused("nothing was changed")

    def ask_at_terminal(self, question: str) -> None:
        """Ask a question if stdin is a terminal, so that scripts are never prompted."""
        if sys.stdin.isatty():
            self.ask(question)

    @contextmanager
    def progress(self, what: str) -> Iterator[Advance]:
        """Show what is being done, and how far it is: on a terminal at once, elsewhere every few seconds."""
        told_at, is_redrawn = time.monotonic(), sys.stderr.isatty() and not is_dumb_terminal()

        def advance(done: int, total: int | None = None) -> None:
            nonlocal told_at
            count = f" {done} of {total}" if total else f" {done}" if done else ""
            if is_redrawn:
                click.echo(f"{_BACK_AND_CLEAR}{what} …{count}", nl=False, err=True, color=True)
            elif time.monotonic() - told_at >= NOTE_SECONDS:
                told_at = time.monotonic()
                self.note(f"{what} …{count}")

        advance(0)
        try:
            yield advance
        finally:
            if is_redrawn:
                click.echo(_BACK_AND_CLEAR, nl=False, err=True, color=True)


@contextmanager
def ending_at_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end a blocking read. asyncio would only cancel its task, which waits for the read."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def is_dumb_terminal() -> bool:
    """Return True if the terminal knows neither colours nor the control sequences that clear a line."""
    return os.environ.get("TERM") == "dumb"


def list_facts(facts: Fields) -> list[Line]:
    """Return a line for each field."""
    width = max(map(len, facts))
    return [(f"{name.replace('_', ' '):{width}}  {_word(value)}", "") for name, value in facts.items()]


def list_table(rows: Sequence[Fields], columns: Sequence[str]) -> list[Line]:
    """Return a heading and a line for each row, or nothing if there are no rows.

    If stdout is not a terminal, tabs separate columns, which suits cut and awk.
    """
    if not rows:
        return []
    cells = [[name.replace("_", " ").upper() for name in columns]]
    cells += [[_word(row[name]) for name in columns] for row in rows]
    if sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
    else:
        lines = ["\t".join(line) for line in cells]
    return [(lines[0], "cyan"), *((line, "") for line in lines[1:])]


def to_json(value: Any) -> str:
    return escape_json(msgspec.json.encode(value).decode())


def _paint(text: str, colour: str) -> str:
    printable = "\t".join(map(make_printable, text.split("\t")))
    return click.style(printable, fg=colour) if colour else printable


def _word(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else str(value)


def format_time(ms: int) -> str:
    """Return the time in UTC, to the second: 2026-11-21T08:30:00Z."""
    return datetime.fromtimestamp(ms // 1000, UTC).isoformat().replace("+00:00", "Z")


def format_span(ms: int) -> str:
    """Return the span in its two greatest units: 3 d 4 h, 12 min 5 s, 0.4 s."""
    if ms < 10_000:
        return f"{ms / 1000:g} s"
    parts: list[str] = []
    seconds = ms // 1000
    for name, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count} {name}" if count else "")
    return " ".join(part for part in parts[:2] if part)


def format_when(ms: int, now_ms: int) -> str:
    """Return the time, and how long ago or ahead it is."""
    span = format_span(abs(now_ms - ms))
    return f"{format_time(ms)} ({span} ago)" if ms <= now_ms else f"{format_time(ms)} (in {span})"


def format_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
