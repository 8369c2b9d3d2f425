"""Tables of Markdown and the numbers in them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results import Machine

Cells = Sequence[str]


def format_table(head: Cells, rows: Sequence[Cells]) -> str:
    """Return a table whose source is aligned, too. The first column is aligned left, all others right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(cells: Cells) -> str:
        first, *others = zip(cells, widths, strict=True)
        return "| " + " | ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]) + " |"

    rule = "| " + " | ".join(["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]) + " |"
    return "\n".join([line(head), rule, *map(line, rows)]) + "\n"


def format_number(number: float | None, unit: str) -> str:
    if number is None:
        return "-"
    text = f"{number:,.0f}" if abs(number) >= 100 or number == int(number) >= 10 else f"{number:.2f}"
    return f"{text} {unit}".strip()


def format_machine(machine: Machine) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions.items())
    return (
        f"On {machine.date}: {machine.cores} cores of {machine.processor} (load before: {machine.busy}), "
        f"{machine.redis}, Python {machine.python}, {versions}.\n"
    )
