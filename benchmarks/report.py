"""The report of a run: tables in Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from benchmarks import connections, costs, floors, imports, lag, logins, million, operations, upgrade
from benchmarks.goals import BOUNDS, GOALS, format_number
from benchmarks.load import Round
from benchmarks.results import Machine, Results, Series, cost_ratio, is_busy, median_of, rate_ratio

FLOOR_OF = {
    operations.REFRESH: floors.EVALSHA,
    operations.REFRESH_ALONE: floors.EVALSHA,
    operations.REFRESH_LOGGED: floors.EVALSHA,
    operations.REFRESH_OF_BROWSER: floors.EVALSHA_OF_BROWSER,
    operations.VERIFY_ASKING: floors.GET,
    operations.VERIFY_MEMORY: floors.ROUTE,
    operations.INTROSPECT_ASKING: floors.GET,
    operations.INTROSPECT_MEMORY: floors.ROUTE,
    operations.REVOKE_SESSION: floors.EVALSHA,
    operations.CHAINED_REFRESH: floors.EVALSHA,
}

COSTS = ("", "answers a second", "server µs", "Redis µs", "p50 ms", "p99 ms", "server", "Redis + load", "busy")

PARTS = {
    "In the application, without a server": (costs.MICROSECONDS, costs.INSTRUCTIONS),
    "Connections": (connections.RATE, connections.P50, connections.P99, connections.PROBE),
    "Three gateways, times in ms": (lag.P99, lag.SLOWEST, lag.LOOKUPS),
    "Sessions on three masters": (million.FEW, million.MANY),
    "Requests while versions replace each other": (upgrade.ANSWERED, upgrade.REFUSED, upgrade.STOPPED, upgrade.LOST),
    "Wrong answers meanwhile": (upgrade.WRONG,),
}
"""Tables of rows that have the same parts."""

SIZED_BYTES = ((million.MANY, million.IDLE), (million.MANY, million.LIVE), (imports.USER_BYTES, imports.ONE_SERVER))
SIZED_TIMES = (logins.PASSWORD, operations.REFRESH_LOGGED, operations.VERIFY_ASKING, operations.VERIFY_MEMORY)
"""What docs/explanation/benchmarks.md has in its table for sizing."""

Cells = Sequence[str]


def format_report(results: Results) -> str:
    series = results.series
    sections = ["# Measurements\n", _format_machine(results.machine), "## Goals\n", _format_goals(results)]
    sections += ["## Bounds\n", _format_bounds(results)]
    if series:
        names = [name for name in (*floors.APPLICATIONS, floors.EVALSHA_OF_BROWSER, *FLOOR_OF) if name in series]
        others = [name for name in series if name not in names]
        rows = [(*_describe(name, series[name]), *_compare(name, series)) for name in names]
        sections += ["## Requests\n", format_table((*COSTS, "cost ratio", "rate ratio", "to"), rows)]
        sections += ["## Logins, peers\n"]
        sections += [format_table(COSTS, [_describe(name, series[name]) for name in others])]
    if sizes := list(_list_sizes(results)):
        head = ("", "bytes", "core of the service, µs", "core of Redis, µs")
        sections += ["## Numbers for sizing\n", format_table(head, sizes)]
    for title, rows_of in PARTS.items():
        if any(row in results.rows for row in rows_of):
            sections += [f"## {title}\n", _format_parts(results, rows_of)]
    if results.lookups:
        rows = [(name, f"{each:.2f}") for name, each in results.lookups.items()]
        sections += ["## The gateway's library\n", format_table(("a call", "µs"), rows)]
    return "\n".join(sections)


def format_table(head: Cells, rows: Sequence[Cells]) -> str:
    """Return a table whose source is aligned, too. The first column is aligned left, all others right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(cells: Cells) -> str:
        first, *others = zip(cells, widths, strict=True)
        return "| " + " | ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]) + " |"

    rule = "| " + " | ".join(["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]) + " |"
    return "\n".join([line(head), rule, *map(line, rows)]) + "\n"


def _format_machine(machine: Machine) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions.items())
    return (
        f"On {machine.date}: {machine.cores} cores of {machine.processor} (load before: {machine.busy}), "
        f"{machine.redis}, {machine.python}, {versions}.\n"
    )


def _format_goals(results: Results) -> str:
    rows = []
    for goal in GOALS:
        measured = goal.measure(results)
        numbers = (format_number(each, goal.unit) for each in (measured, goal.goal))
        rows.append((goal.what, *numbers, goal.judge(measured)))
    return format_table(("what", "measured", "goal", ""), rows)


def _format_bounds(results: Results) -> str:
    rows = []
    for bound in BOUNDS:
        part, measured = bound.find_worst(results) or ("", None)
        numbers = (format_number(each, bound.unit) for each in (measured, bound.limit))
        rows.append((bound.what, *numbers, bound.judge(measured), part))
    return format_table(("what", "measured", "bound", "", "worst"), rows)


def _format_parts(results: Results, rows: Sequence[str]) -> str:
    """Return a table with a line for each part and a column for each row."""
    found = [results.rows.get(row, {}) for row in rows]
    numbers = {part: [statistics.median(row.get(part, [math.nan])) for row in found] for row in found for part in row}
    cells = [(part, *map(_format_value, of_row)) for part, of_row in numbers.items()]
    return format_table(("", *rows), cells)


def _format_value(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _list_sizes(results: Results) -> Iterator[Cells]:
    for row, part in SIZED_BYTES:
        if values := results.rows.get(row, {}).get(part):
            name = part.removesuffix(", bytes") if row == million.MANY else row
            yield name, f"{statistics.median(values):,.0f}", "", ""
    for name in SIZED_TIMES:
        if rounds := results.series.get(name):
            service, redis = median_of(rounds, lambda one: one.server_us), median_of(rounds, lambda one: one.redis_us)
            # Redis does little else than its background work while a worker hashes passwords.
            yield name, "", f"{service:,.0f}", "" if name == logins.PASSWORD else f"{redis:,.0f}"


def _describe(name: str, rounds: Sequence[Round]) -> Cells:
    return (
        name,
        f"{median_of(rounds, lambda one: one.rate):,.0f}",
        f"{median_of(rounds, lambda one: one.server_us):,.0f}",
        f"{median_of(rounds, lambda one: one.redis_us):,.0f}",
        f"{median_of(rounds, lambda one: one.p50_ms):.2f}",
        f"{median_of(rounds, lambda one: one.p99_ms):.2f}",
        f"{median_of(rounds, lambda one: one.server_share):.0%}",
        f"{median_of(rounds, lambda one: one.load_share):.0%}",
        f"{sum(map(is_busy, rounds))} of {len(rounds)}",
    )


def _compare(name: str, series: Series) -> Cells:
    floor = FLOOR_OF.get(name)
    if floor is None:
        return "", "", ""
    rounds, floor_rounds = series[name], series[floor]
    try:
        return f"{cost_ratio(rounds, floor_rounds):.2f}", f"{rate_ratio(rounds, floor_rounds):.2f}", floor
    except KeyError:
        return "not measured", "not measured", floor
