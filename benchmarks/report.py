"""The report of a run: tables in Markdown, and the charts beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import floors, operations
from benchmarks.charts import Bar, Kind, draw_bars
from benchmarks.goals import GOALS
from benchmarks.load import Round
from benchmarks.results import Machine, Results, Series, cost_ratio, median_of, rate_ratio, save_results

FULL_SHARE = 0.9
"""A core that is busy for so much of the time is what bounds a row."""

FLOOR_OF = {
    operations.REFRESH: floors.EVALSHA,
    operations.REFRESH_ALONE: floors.EVALSHA,
    operations.REFRESH_LOGGED: floors.EVALSHA,
    operations.VERIFY_ASKING: floors.GET,
    operations.VERIFY_MEMORY: floors.ROUTE,
    operations.INTROSPECT_ASKING: floors.GET,
    operations.INTROSPECT_MEMORY: floors.ROUTE,
    operations.REVOKE_SESSION: floors.EVALSHA,
}
COMPARED = (operations.REFRESH, operations.INTROSPECT_ASKING, operations.REVOKE_SESSION)
"""What the peers do, too."""

PROFILE = "profile.md"
"""What people wrote beside the report: where the time of a row goes. The report points at it where it is there."""

Cells = Sequence[str]
COSTS = ("", "answers a second", "server µs", "Redis µs", "p50 ms", "p99 ms")
BOUNDS = ("server", "Redis + load", "bound by")

HEAD = """\
# What it costs

`./scripts/bench` measured this and wrote it. Ratios count: times are those of one machine, and of a minute of it.
What another caller notices of hostile requests has [a page of its own](neighbours.md).
"""

METHOD = """\
## How it is measured

- One worker on the first core; wrk and Redis on the second. Redis keeps its append-only file, and does not rewrite it
  meanwhile. 64 connections are kept alive, unless a row says otherwise. The floors are applications of this
  repository ([floors.py](../../benchmarks/floors.py)), under uvicorn with uvloop and httptools, as the service is.
- What is compared takes turns, round by round, and a ratio is the median of the ratios of all rounds. A cost ratio is
  one of processor time of the server for each request, since a neighbour on the machine cannot take that away: 1.0 is
  as cheap as the floor, more is cheaper. A rate ratio is one of answers a second.
- An answer counts as wrong unless its status is right, and of a refresh also its body. One of those ends the run.
  Before and after each round requests of its own are looked at in whole.
- Each round has sessions of its own, so many that each is refreshed once or twice, as in life; each request presents
  the refresh token of an earlier answer, and none is presented twice. The client has a secret. `verify` and
  `introspect` ask for 100 tokens in turns, `revoke` ends a session with each request.
- "Server" and "Redis + load" are shares of their cores. Where the second is full and the first is not, the load
  bounds the row, and its rate says less than its processor time. "Neither" is a row that waits, as one connection
  does, or a machine with other work.
- Latencies are those of wrk, which reckons in what it could not send while an answer stalled.
- A storm of logins is as many as 4 connections bring about, while 8 others refresh about 400 times a second; the
  server's time of that row is that of the logins, too. "argon2id alone" checks the same password in a loop, on the
  same core.
- The log shows warnings only, on both sides; the row "refresh, logged" has it at its default level, where each refresh
  writes two lines, to a file.
- Bytes of a session are what Redis took for all of them, without its connections, divided by their number; each is
  another user's. What a rotation leaves is weighed key by key, once its access token and its grace are over, which
  are short for that.
"""


REPRODUCTION = """\
## Measure it yourself

```sh
./scripts/bench             # all but the peers, in a quarter of an hour; on two cores with nothing else to do
./scripts/bench --peers     # and the peers, which it installs first, in turns with ours
./scripts/bench --quick     # less than a minute: a first impression, written to build/benchmarks
```

It installs what it needs, and writes this page, its charts and [results.json](results.json), which has every round.
Peers stay as they were last measured until `--peers` measures them again; their date is theirs.
"""


def write_report(results: Results, folder: Path) -> str:
    """Writes report, charts and numbers into the folder, which it makes; returns the report."""
    folder.mkdir(parents=True, exist_ok=True)
    charts = draw_charts(results)
    for name, chart in charts.items():
        (folder / name).write_text(chart)
    report = format_report(results, charts, has_profile=(folder / PROFILE).exists())
    (folder / "README.md").write_text(report)
    save_results(results, folder)
    return report


def format_report(results: Results, charts: Iterable[str], *, has_profile: bool = False) -> str:
    series = results.series
    parts = [
        HEAD,
        format_machine(results.machine),
        _format_extent(results),
        "## Goals\n",
        _format_goals(results),
        *([f"What bounds those that fall short: [from a profile]({PROFILE}).\n"] if has_profile else []),
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
    return "\n".join(parts)


def format_table(head: Cells, rows: Sequence[Cells]) -> str:
    """Columns as wide as their widest cell, so that it can be read as it is, too; the first to the left."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(cells: Cells) -> str:
        first, *others = zip(cells, widths, strict=True)
        return "| " + " | ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]) + " |"

    rule = "| " + " | ".join(["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]) + " |"
    return "\n".join([line(head), rule, *map(line, rows)]) + "\n"


def judge_bound(rounds: Sequence[Round]) -> str:
    """Which core was full: the server's, as it should be, or that of Redis and the load; or neither."""
    if median_of(rounds, lambda one: one.server_share) >= FULL_SHARE:
        return "server"
    return "load" if median_of(rounds, lambda one: one.load_share) >= FULL_SHARE else "neither"


def format_machine(machine: Machine) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions.items())
    return (
        f"On {machine.date}: {machine.cores} cores of {machine.processor} (load before: {machine.busy}), "
        f"{machine.redis}, Python {machine.python}, {versions}.\n"
    )


def _format_extent(results: Results) -> str:
    rounds = max(map(len, results.series.values()), default=0)
    quick = "This was a quick run, which leaves rows out. " if results.quick else ""
    return f"{quick}{rounds} rounds of {results.seconds} s; bytes of {results.sessions:,} sessions.\n"


def _format_goals(results: Results) -> str:
    rows = []
    for goal in GOALS:
        measured = goal.measure(results)
        rows.append(
            (
                goal.what,
                _format_number(measured, goal.unit),
                _format_number(goal.goal, goal.unit),
                _format_number(goal.moonshot, goal.unit),
                goal.judge(measured),
            )
        )
    return format_table(("what", "measured", "goal", "moonshot", ""), rows)


def _format_number(number: float | None, unit: str) -> str:
    if number is None:
        return "-"
    text = f"{number:,.0f}" if abs(number) >= 100 or number == int(number) >= 10 else f"{number:.2f}"
    return f"{text} {unit}".strip()


def _format_requests(series: Series) -> str:
    names = [name for name in (*floors.APPLICATIONS, *FLOOR_OF) if name in series]
    return format_table(
        (*COSTS, *BOUNDS, "cost ratio", "rate ratio", "to"),
        [(*_describe(name, series[name]), *_tell_bound(series[name]), *_compare(name, series)) for name in names],
    )


def _format_peers(results: Results) -> str:
    """Ours are those of the run that measured the peers, which may be an earlier one."""
    assert results.peers is not None
    both = results.peers.ours | results.peers.series
    rows = [(*_describe(name, rounds), *_tell_bound(rounds)) for name, rounds in both.items()]
    return (
        "## Peers\n\n"
        "How each is set up: [benchmarks/peers](../../benchmarks/peers/README.md). In one run with these of ours.\n\n"
        + format_machine(results.peers.machine)
        + "\n"
        + format_table((*COSTS, *BOUNDS), rows)
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


def _tell_bound(rounds: Sequence[Round]) -> Cells:
    return (
        f"{median_of(rounds, lambda one: one.server_share):.0%}",
        f"{median_of(rounds, lambda one: one.load_share):.0%}",
        judge_bound(rounds),
    )


def _compare(name: str, series: Series) -> Cells:
    floor = FLOOR_OF.get(name)
    if floor is None:
        return "", "", ""
    ours, other = series[name], series[floor]
    return f"{cost_ratio(ours, other):.2f}", f"{rate_ratio(ours, other):.2f}", floor


def draw_charts(results: Results) -> dict[str, str]:
    """By file name: ratios to the floors, what a request costs, and how many a core answers, beside the peers."""
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
        ours, theirs = results.peers.ours, list(results.peers.series.items())
        rates: list[Bar] = []
        for turn, (name, rounds) in enumerate(ours.items()):
            rates.append(_rate_bar(name, rounds, "ours"))
            rates += [_rate_bar(*other, "peer") for other in theirs[turn :: len(ours)]]
        charts["peers.svg"] = draw_bars("What a core answers", "requests for a second of its time", rates)
    return charts


def _rate_bar(name: str, rounds: Sequence[Round], kind: Kind) -> Bar:
    return Bar(name, median_of(rounds, lambda one: 1e6 / one.server_us), kind)


def summarise(results: Results) -> str:
    """What the terminal shows: goals and requests."""
    return "\n".join([_format_goals(results), _format_requests(results.series)])
