"""Colours, tables and progress bars, by rich.

Only `output` imports this module, when it prints one of them: rich takes as long as half a command without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, Task, TimeElapsedColumn
from rich.table import Table
from rich.text import Text


class _CountColumn(MofNCompleteColumn):
    """The number of finished steps. Work that is not counted shows none."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.completed or task.total else Text("")


class Printer:
    """Prints to a stream whose lines are as wide as the terminal, or have the given width in columns."""

    def __init__(self, stream: TextIO, width: int | None) -> None:
        self._stream = stream
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False, width=width)

    def print_line(self, *parts: tuple[str, str]) -> None:
        """Print a line of texts, each with its style."""
        self._console.print(Text.assemble(*parts), soft_wrap=True)

    def print_table(self, headings: Iterable[str], rows: Iterable[Sequence[str]]) -> None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in headings:
            table.add_column(heading, overflow="fold")
        self._print(table, rows)

    def print_facts(self, facts: Iterable[tuple[str, str]]) -> None:
        """Print names and values in two columns."""
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        self._print(table, facts)

    @contextmanager
    def showing_progress(self, what: str) -> Iterator[Callable[..., None]]:
        columns = (SpinnerColumn(), "{task.description}", BarColumn(), _CountColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as bars:
            task = bars.add_task(what, total=None)

            def advance(done: int, total: int | None = None) -> None:
                bars.update(task, completed=done, total=total)

            yield advance

    def _print(self, table: Table, rows: Iterable[Sequence[str]]) -> None:
        """Print a table without the blanks that fill up its last column."""
        for row in rows:
            table.add_row(*map(Text, row))
        with self._console.capture() as printed:
            self._console.print(table)
        self._stream.write("".join(line.rstrip() + "\n" for line in printed.get().splitlines()))
        self._stream.flush()
