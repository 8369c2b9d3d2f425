"""The ratios, verdicts, bounds and report that scripts/bench makes of measured values. These tests measure nothing."""

from __future__ import annotations

import pytest

from benchmarks import floors, operations, steps
from benchmarks.__main__ import GROUPS, choose_groups, report_violations
from benchmarks.goals import GOALS, Goal
from benchmarks.load import LoadFailed, Round, parse_wrk_summary
from benchmarks.report import format_report
from benchmarks.results import Machine, Results, cost_ratio, rate_ratio

LOADER_OUTPUT = '{"requests":10,"duration_us":2000000,"p50_us":1,"p99_us":2,"unanswered":0,"refused":0,"wrong":0}'
MACHINE = Machine("2026-01-31", "A Processor", 2, 0.1, "Redis 7.0.15", "3.11.7", {"starlette": "1.10.0"})


def make_round(server_us: float, *, rate: float = 1000) -> Round:
    """Return a round that lasted one second."""
    return Round(int(rate), 1.0, server_us * rate / 1e6, 0.1, 0.1, p50_ms=1.0, p99_ms=3.0)


def make_results(server_us: float = 200, *, step_ms: float = 1.0) -> Results:
    """Return results of refreshes, and of steps. A form has `step_ms` in its middle round."""
    series = {floors.EVALSHA: [make_round(100)] * 3, operations.REFRESH: [make_round(server_us)] * 3}
    return Results(MACHINE, series=series, rows={steps.HOSTILE: {"a form": [0.5, step_ms, 9.0], "a cookie": [0.2]}})


def find_goal(what: str) -> Goal:
    (goal,) = (goal for goal in GOALS if goal.what.startswith(what))
    return goal


def test_the_last_line_of_wrk_counts() -> None:
    output = parse_wrk_summary(f"Running 1s test\n  10 requests in 2.00s\n{LOADER_OUTPUT}\n")

    assert (output.requests, output.duration_us) == (10, 2_000_000)


@pytest.mark.parametrize(
    "output", ["", "unable to connect\n", *(LOADER_OUTPUT.replace(f'{each}":0', f'{each}":1') for each in ("wrong",))]
)
def test_a_wrong_or_missing_response_ends_the_run(output: str) -> None:
    with pytest.raises(LoadFailed):
        parse_wrk_summary(output)


def test_a_ratio_is_the_median_of_its_turns() -> None:
    """The machine slows down both in the second turn, and only one of them in the third."""
    floor = [make_round(100, rate=1000), make_round(300, rate=300), make_round(100, rate=1000)]
    rounds = [make_round(200, rate=500), make_round(600, rate=150), make_round(900, rate=100)]

    assert cost_ratio(rounds, floor) == pytest.approx(0.5)
    assert rate_ratio(rounds, floor) == pytest.approx(0.5)


@pytest.mark.parametrize(("server_us", "word"), [(62.5, "moonshot"), (76, "met"), (100, "short")])
def test_a_goal_is_judged_by_the_ratio_to_its_floor(server_us: float, word: str) -> None:
    goal = find_goal("refresh / [Starlette + 1 EVALSHA]")

    assert word == goal.judge(goal.measure(make_results(server_us)))


def test_check_reports_an_exceeded_bound(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_violations(make_results(step_ms=5.0)) == 0
    assert report_violations(make_results(step_ms=7.25)) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert "longest step for a hostile request: 7.25 ms (a form); the bound is 5.00 ms, and catches work" in line


def test_a_quick_run_leaves_out_long_groups() -> None:
    assert choose_groups(quick=True) == ["costs", "steps"]
    assert choose_groups(quick=False) == list(GROUPS)


def test_the_report_shows_goals_bounds_and_requests() -> None:
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in format_report(make_results()).splitlines()]

    assert ["refresh / [Starlette + 1 EVALSHA]", "0.50", "1.30", "1.60", "short"] in lines
    assert [steps.HOSTILE, "1.00 ms", "5.00 ms", "met", "a form"] in lines
    assert ["revoke / [Starlette + 1 EVALSHA]", "-", "0.90", "1.40", "not measured"] in lines
    assert [
        "refresh",
        "1,000",
        "200",
        "100",
        "1.00",
        "3.00",
        "20%",
        "20%",
        "neither",
        "0.50",
        "1.00",
        floors.EVALSHA,
    ] in lines
