"""The report of a run: tables in Markdown, and charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import floors, neighbours, operations
from benchmarks.bounds import BOUNDS
from benchmarks.charts import Bar, Kind, draw_bars
from benchmarks.goals import GOALS
from benchmarks.load import Round
from benchmarks.results import Results, Series, cost_ratio, median_of, rate_ratio, save_results
from benchmarks.tables import Cells, format_machine, format_number, format_table
from benchmarks.texts import HEAD, METHOD, REPRODUCTION

SATURATED_SHARE = 0.9
"""The share from which a core counts as saturated, so that it limits the rate of a row."""

FLOOR_OF = {
    operations.REFRESH: floors.EVALSHA,
    operations.REFRESH_ALONE: floors.EVALSHA,
    operations.REFRESH_LOGGED: floors.EVALSHA,
    operations.VERIFY_ASKING: floors.GET,
    operations.VERIFY_MEMORY: floors.ROUTE,
    operations.INTROSPECT_ASKING: floors.GET,
    operations.INTROSPECT_MEMORY: floors.ROUTE,
    operations.REVOKE_SESSION: floors.EVALSHA,
    operations.CHAINED_REFRESH: floors.EVALSHA,
}
COMPARED = (
    operations.REFRESH,
    operations.INTROSPECT_ASKING,
    operations.REVOKE_SESSION,
    operations.CHAINED_REFRESH,
)
"""The operations that are also measured on the peers."""

PROFILE = "profile.md"
"""A page that people write about the time of each row. The report links to it if it exists."""

COSTS = ("", "answers a second", "server µs", "Redis µs", "p50 ms", "p99 ms")
CORES = ("server", "Redis + load", "load alone", "bound by")


def write_report(results: Results, folder: Path) -> str:
    """Write the report, its charts and results.json into the folder. Returns the report."""
    folder.mkdir(parents=True, exist_ok=True)
    charts = draw_charts(results)
    for name, chart in charts.items():
        (folder / name).write_text(chart)
    report = format_report(results, charts, has_profile=(folder / PROFILE).exists())
    (folder / "README.md").write_text(report)
    if results.notices:
        (folder / neighbours.PAGE).write_text(neighbours.format_page(results.machine, results.notices))
    save_results(results, folder)
    return report


def format_report(results: Results, charts: Iterable[str], *, has_profile: bool = False) -> str:
    series = results.series
    sections = [
        HEAD,
        format_machine(results.machine),
        _format_extent(results),
        "## Goals\n",
        _format_goals(results),
        *([f"Why some rows miss their goal: [profile]({PROFILE}).\n"] if has_profile else []),
        "## Bounds\n",
        _format_bounds(results),
        "## Requests\n",
        _format_requests(series),
        *(f"![{name.removesuffix('.svg')}]({name})\n" for name in charts),
        "## Logins, workers, many sessions\n",
        format_table(
            COSTS,
            [_describe(name, series[name]) for name in series if name not in (*floors.APPLICATIONS, *FLOOR_OF)],
        ),
        "## The gateway's library\n",
        format_table(("a call", "µs"), [(name, f"{each:.2f}") for name, each in results.lookups.items()]),
        *([_format_peers(results)] if results.peers else []),
        METHOD,
        REPRODUCTION,
    ]
    return "\n".join(sections)


def judge_bottleneck(rounds: Sequence[Round]) -> str:
    """Return the saturated core: `server`, `load` for that of Redis and wrk, or `neither`."""
    if median_of(rounds, lambda one: one.server_share) >= SATURATED_SHARE:
        return "server"
    return "load" if median_of(rounds, lambda one: one.load_share) >= SATURATED_SHARE else "neither"


def _format_extent(results: Results) -> str:
    if not results.series:
        return "Only some of the bounds were measured.\n"
    rounds = max(map(len, results.series.values()))
    quick = "This was a quick run, which leaves rows out. " if results.quick else ""
    return f"{quick}{rounds} rounds of {results.seconds} s; bytes of {results.sessions:,} sessions.\n"


def _format_goals(results: Results) -> str:
    rows = []
    for goal in GOALS:
        measured = goal.measure(results)
        rows.append(
            (
                goal.what,
                format_number(measured, goal.unit),
                format_number(goal.goal, goal.unit),
                format_number(goal.moonshot, goal.unit),
                goal.judge(measured),
            )
        )
    return format_table(("what", "measured", "goal", "moonshot", ""), rows)


def _format_bounds(results: Results) -> str:
    rows = []
    for bound in BOUNDS:
        worst = bound.find_worst(results)
        part, measured = ("", None) if worst is None else worst
        limit = format_number(bound.limit, bound.unit)
        rows.append(
            (bound.what, format_number(measured, bound.unit), limit, bound.judge(measured), part.replace("|", r"\|"))
        )
    return format_table(("what", "measured", "bound", "", "worst"), rows)


def _format_requests(series: Series) -> str:
    names = [name for name in (*floors.APPLICATIONS, *FLOOR_OF) if name in series]
    return format_table(
        (*COSTS, *CORES, "cost ratio", "rate ratio", "to"),
        [(*_describe(name, series[name]), *_format_cores(series[name]), *_compare(name, series)) for name in names],
    )


def _format_peers(results: Results) -> str:
    """Return the table of the peers and the service. All are of one run, which may be an earlier one."""
    assert results.peers is not None
    all_rows = results.peers.ours | results.peers.series
    rows = [(*_describe(name, rounds), *_format_cores(rounds)) for name, rounds in all_rows.items()]
    return (
        "## Peers\n\n"
        "The setup of each peer: [benchmarks/peers](../../benchmarks/peers/README.md). "
        "The rows of the service are of the same run.\n\n"
        + format_machine(results.peers.machine)
        + "\n"
        + format_table((*COSTS, *CORES), rows)
    )


def _describe(name: str, rounds: Sequence[Round]) -> Cells:
    return (
        name,
        f"{median_of(rounds, lambda one: one.rate):,.0f}",
        f"{median_of(rounds, lambda one: one.server_us):,.0f}",
        f"{median_of(rounds, lambda one: one.redis_us):,.0f}",
        f"{median_of(rounds, lambda one: one.p50_ms):.2f}",
        f"{median_of(rounds, lambda one: one.p99_ms):.2f}",
    )


def _format_cores(rounds: Sequence[Round]) -> Cells:
    return (
        f"{median_of(rounds, lambda one: one.server_share):.0%}",
        f"{median_of(rounds, lambda one: one.load_share):.0%}",
        f"{median_of(rounds, lambda one: one.wrk_share):.0%}",
        judge_bottleneck(rounds),
    )


def _compare(name: str, series: Series) -> Cells:
    floor = FLOOR_OF.get(name)
    if floor is None:
        return "", "", ""
    rounds, floor_rounds = series[name], series[floor]
    return f"{cost_ratio(rounds, floor_rounds):.2f}", f"{rate_ratio(rounds, floor_rounds):.2f}", floor


def draw_charts(results: Results) -> dict[str, str]:
    """Return the charts by file name: ratios to the floors, processor time of a request, and requests per core."""
    costs = [
        Bar(name, median_of(rounds, lambda one: one.server_us), "floor" if name in floors.APPLICATIONS else "ours")
        for name, rounds in results.series.items()
        if name in floors.APPLICATIONS or name in FLOOR_OF
    ]
    ratios = [
        Bar(f"{name} / {floor}", cost_ratio(results.series[name], results.series[floor]), "ours")
        for name, floor in FLOOR_OF.items()
        if name in results.series and name != operations.REFRESH_ALONE
    ]
    charts = {
        "ratios.svg": draw_bars("Beside its floor", "1.0 costs as little, more costs less", ratios, mark=1.0),
        "costs.svg": draw_bars("What a request costs", "µs of the server's core, less is better", costs),
    }
    if results.peers is not None:
        service_rows, peer_rows = results.peers.ours, list(results.peers.series.items())
        rates: list[Bar] = []
        for turn, (name, rounds) in enumerate(service_rows.items()):
            rates.append(_rate_bar(name, rounds, "ours"))
            rates += [_rate_bar(*other, "peer") for other in peer_rows[turn :: len(service_rows)]]
        charts["peers.svg"] = draw_bars("What a core answers", "requests for a second of its time", rates)
    return charts


def _rate_bar(name: str, rounds: Sequence[Round], kind: Kind) -> Bar:
    return Bar(name, median_of(rounds, lambda one: 1e6 / one.server_us), kind)


def summarise(results: Results) -> str:
    """Return the text for the terminal: goals, bounds and requests."""
    requests = [_format_requests(results.series)] if results.series else []
    return "\n".join([_format_goals(results), _format_bounds(results), *requests])
