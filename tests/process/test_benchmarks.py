"""The statistics, verdicts, bounds and report that scripts/bench makes of measured values.

These tests measure nothing.
"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import floors, neighbours, operations, outages, parsers, steps
from benchmarks.__main__ import report_violations
from benchmarks.bounds import BOUNDS, Bound, each, list_violations, ratio
from benchmarks.charts import Bar, draw_bars
from benchmarks.goals import GOALS, Goal
from benchmarks.groups import ALL, choose_groups
from benchmarks.load import LoadFailed, Round, Target, parse_wrk_summary
from benchmarks.report import judge_bottleneck, write_report
from benchmarks.results import WHOLE, CallerLatency, Machine, Peers, Results, Rows, cost_ratio, load_results, rate_ratio
from benchmarks.tables import format_table
from tests.support.servers import CHECKOUT

LOADER_OUTPUT = '{"requests":10,"duration_us":2000000,"p50_us":1,"p99_us":2,"unanswered":0,"refused":0,"wrong":0}'
MACHINE = Machine("2026-01-31", "A Processor", 2, 0.1, "Redis 7.0.15", "3.11.7", {"starlette": "1.10.0"})


def make_round(server_us: float, *, rate: float = 1000, load_seconds: float = 0.1, redis_us: float = 100) -> Round:
    """Return a round that lasted one second."""
    server_seconds, redis_seconds = server_us * rate / 1e6, redis_us * rate / 1e6
    return Round(int(rate), 1.0, server_seconds, redis_seconds, load_seconds, p50_ms=1.0, p99_ms=3.0)


def make_chains(rate: float) -> list[Round]:
    """Return two rounds; the second had half of the rate."""
    return [make_round(100, rate=rate), make_round(100, rate=rate / 2)]


def make_peers(our_rounds: list[Round], peer_rounds: list[Round]) -> Peers:
    """Return rounds of chained refreshes."""
    row = operations.name_peer_row(operations.OIDC_PROVIDER, operations.CHAINED_REFRESH)
    return Peers(MACHINE, {row: peer_rounds}, {operations.CHAINED_REFRESH: our_rounds})


def make_results(server_us: float = 200, *, peers: Peers | None = None) -> Results:
    series = {floors.EVALSHA: [make_round(100)] * 3, operations.REFRESH: [make_round(server_us)] * 3}
    return Results(MACHINE, quick=False, seconds=3, series=series, bytes_per_session=600.0, peers=peers)


def make_rows(step_ms: float = 1.0) -> Rows:
    """Return the rows of two groups. `a form` has this longest step in its middle round."""
    return {
        steps.HOSTILE: {"a form": [0.5, step_ms, 9.0], "a cookie": [0.2, 0.2, 0.2]},
        outages.BACK: {"killed": [0.1]},
    }


def find_goal(what: str) -> Goal:
    (goal,) = (goal for goal in GOALS if goal.what.startswith(what))
    return goal


def find_bound(what: str) -> Bound:
    (bound,) = (bound for bound in BOUNDS if bound.what == what)
    return bound


def read_bound(report: str, what: str) -> list[str]:
    """Return the cells behind the name of a row."""
    (line,) = (line for line in report.splitlines() if line.startswith(f"| {what} "))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_the_last_line_of_wrk_is_what_counts() -> None:
    output = parse_wrk_summary(f"Running 1s test\n  10 requests in 2.00s\n{LOADER_OUTPUT}\n")

    assert (output.requests, output.duration_us) == (10, 2_000_000)


@pytest.mark.parametrize("wrong", ['"unanswered":0', '"refused":0', '"wrong":0'])
def test_a_single_wrong_answer_ends_the_run(wrong: str) -> None:
    with pytest.raises(LoadFailed, match="not every response"):
        parse_wrk_summary(LOADER_OUTPUT.replace(wrong, wrong.replace(":0", ":1")))


@pytest.mark.parametrize("said", ["", "unable to connect\n", LOADER_OUTPUT.replace("10", "0")])
def test_wrk_without_answers_ends_the_run(said: str) -> None:
    with pytest.raises(LoadFailed):
        parse_wrk_summary(said)


def test_a_round_tells_rates_and_shares() -> None:
    round_ = Round(500, 2.0, server_seconds=1.0, redis_seconds=0.2, load_seconds=0.4, p50_ms=1.0, p99_ms=3.0)

    assert (round_.rate, round_.server_us, round_.redis_us) == (250, 2000, 400)
    assert round_.server_share == 0.5
    assert pytest.approx(0.3) == round_.load_share
    assert round_.wrk_share == 0.2


def test_a_ratio_is_the_median_of_its_turns() -> None:
    """The machine slows down both in the second turn, and only one of them in the third."""
    floor = [make_round(100, rate=1000), make_round(300, rate=300), make_round(100, rate=1000)]
    our_rounds = [make_round(200, rate=500), make_round(600, rate=150), make_round(900, rate=100)]

    assert cost_ratio(our_rounds, floor) == pytest.approx(0.5)
    assert rate_ratio(our_rounds, floor) == pytest.approx(0.5)


@pytest.mark.parametrize(("server_us", "word"), [(62.5, "moonshot"), (76, "met"), (100, "short")])
def test_a_goal_is_judged_by_the_ratio_to_its_floor(server_us: float, word: str) -> None:
    goal = find_goal("refresh / [Starlette + 1 EVALSHA]")

    assert word == goal.judge(goal.measure(make_results(server_us)))


def test_of_bytes_fewer_are_better() -> None:
    goal = find_goal("Redis, a session")

    assert (goal.judge(650), goal.judge(651), goal.judge(560)) == ("met", "short", "moonshot")


def test_a_session_with_ten_tokens_has_a_goal_of_its_own() -> None:
    results = make_results()
    results.bytes_of_ten_tokens = 3_300.0
    goal = find_goal("Redis, the same with ten live access tokens")

    assert goal.judge(goal.measure(results)) == "met"
    assert goal.judge(goal.measure(make_results())) == "not measured"


@pytest.mark.parametrize(("redis_us", "word"), [(150, "moonshot"), (200, "met"), (201, "short")])
def test_the_redis_time_of_a_refresh_is_judged(redis_us: float, word: str) -> None:
    results = make_results()
    results.series[operations.REFRESH] = [make_round(200, redis_us=redis_us)] * 3
    goal = find_goal("refresh, Redis time")

    assert word == goal.judge(goal.measure(results))


@pytest.mark.parametrize(("rate", "word"), [(5_000, "moonshot"), (3_500, "met"), (3_490, "short")])
def test_chains_are_compared_with_a_peer_turn_by_turn(rate: float, word: str) -> None:
    """Another program halves both rates in the last turn."""
    goal = find_goal("chained refresh")
    results = make_results(peers=make_peers(make_chains(rate), make_chains(1_000)))

    assert word == goal.judge(goal.measure(results))


def test_chains_are_not_measured_without_a_run_of_peers() -> None:
    goal = find_goal("chained refresh")
    earlier = Peers(MACHINE, {"another, refresh": [make_round(1)]}, {operations.REFRESH: [make_round(1)]})

    assert goal.measure(make_results()) is None
    assert goal.measure(make_results(peers=earlier)) is None


def test_a_target_may_fix_the_length_of_its_rounds(tmp_path: Path) -> None:
    lengths: list[int] = []

    def prepare(seconds: int) -> list[str]:
        lengths.append(seconds)
        raise LoadFailed("no server")

    for fixed in (None, 10):
        with pytest.raises(LoadFailed, match="no server"):
            Target("a row", "http://127.0.0.1:1", 1, 1, prepare=prepare, seconds=fixed).measure(3)

    assert lengths == [3, 10]


def test_what_was_not_measured_is_no_failure_and_no_success() -> None:
    goal = find_goal("a million sessions")

    assert goal.measure(make_results()) is None
    assert goal.judge(None) == "not measured"


def test_each_bound_has_a_name_of_its_own_and_a_fault() -> None:
    assert len({bound.what for bound in BOUNDS}) == len(BOUNDS)
    assert all(bound.catches and bound.limit > 0 for bound in BOUNDS)


@pytest.mark.parametrize(("step_ms", "word"), [(4.9, "met"), (5.0, "met"), (5.1, "short")])
def test_the_worst_part_is_held_against_the_bound(step_ms: float, word: str) -> None:
    results = make_results()
    results.rows = make_rows(step_ms)
    bound = find_bound(steps.HOSTILE)

    assert bound.find_worst(results) == ("a form", step_ms)
    assert bound.judge(step_ms) == word


def test_a_bound_takes_the_value_of_the_rounds_that_it_names() -> None:
    results = make_results()
    results.rows = make_rows()

    assert each(steps.HOSTILE, max)(results) == {"a form": 9.0, "a cookie": 0.2}
    assert ratio(steps.HOSTILE, "a form", "a cookie")(results) == {WHOLE: 2.5}


def test_check_fails_for_a_broken_bound_and_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    results = make_results()
    results.rows = make_rows(step_ms=7.25)

    assert report_violations(results) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert "longest step for a hostile request: 7.25 ms (a form); the bound is 5.00 ms, and catches work" in line


def test_of_many_parts_that_break_a_bound_the_worst_are_told() -> None:
    results = make_results()
    results.rows = {steps.HOSTILE: {f"request {number}": [10.0 * number] for number in range(8)}}

    (line,) = list_violations(results)
    assert "70 ms (request 7), 60 ms (request 6)" in line
    assert "30 ms (request 3) and 2 more; the bound" in line


def test_check_passes_where_each_bound_is_met(capsys: pytest.CaptureFixture[str]) -> None:
    results = make_results()
    results.rows = make_rows()

    assert report_violations(results) == 0
    assert capsys.readouterr().out == ""


def test_a_bound_that_was_not_measured_is_not_short() -> None:
    assert list_violations(make_results()) == []
    assert find_bound(parsers.GROWTH).find_worst(make_results()) is None
    assert find_bound(parsers.GROWTH).judge(None) == "not measured"


def test_a_quick_run_leaves_out_what_takes_long() -> None:
    assert "steps" in choose_groups(quick=True)
    assert not {"outages", "neighbours"} & set(choose_groups(quick=True))
    assert choose_groups(quick=False) == ALL


def test_what_other_callers_notice_has_a_bound_and_a_page(tmp_path: Path) -> None:
    results = make_results()
    results.notices = [CallerLatency(neighbours.UNDISTURBED, 1, 20, 30), CallerLatency("a form", 1, 10.5, 12, 300)]
    report = write_report(results, tmp_path)

    (line,) = list_violations(results)
    assert "p99: 10.50 ms (a form); the bound is 10 ms" in line
    assert read_bound(report, neighbours.CALLER_P99) == ["10.50 ms", "10 ms", "short", "a form"]
    assert "| a form " in (tmp_path / "neighbours.md").read_text()
    assert results == load_results(tmp_path)


def test_a_report_shows_bounds_that_are_met(tmp_path: Path) -> None:
    results = make_results()
    results.rows = make_rows()
    report = write_report(results, tmp_path)

    assert read_bound(report, steps.HOSTILE) == ["1.00 ms", "5.00 ms", "met", "a form"]
    assert read_bound(report, parsers.GROWTH) == ["-", "3.00", "not measured", ""]
    assert results == load_results(tmp_path)


def test_the_stored_results_are_read() -> None:
    """Results of an earlier version lack the rows of bounds."""
    assert load_results(CHECKOUT / "docs" / "benchmarks") is not None


def test_a_full_core_is_what_bounds() -> None:
    assert judge_bottleneck([make_round(950)]) == "server"
    assert judge_bottleneck([make_round(500, load_seconds=0.85)]) == "load"
    assert judge_bottleneck([make_round(500)]) == "neither"


def test_columns_of_a_table_are_as_wide_as_their_cells() -> None:
    table = format_table(("", "µs"), [("a long name", "1"), ("b", "22")])

    assert {len(line) for line in table.splitlines()} == {20}


def test_a_report_is_read_again_and_has_its_charts(tmp_path: Path) -> None:
    results = make_results()

    report = write_report(results, tmp_path / "new")

    assert results == load_results(tmp_path / "new")
    assert "| refresh / [Starlette + 1 EVALSHA] " in report
    assert "](costs.svg)" in report
    assert "Peers\n" not in report
    assert {"README.md", "costs.svg", "ratios.svg", "results.json"} == {
        path.name for path in (tmp_path / "new").iterdir()
    }


def test_a_report_points_at_the_profile_that_people_wrote_beside_it(tmp_path: Path) -> None:
    assert "profile.md" not in write_report(make_results(), tmp_path)

    (tmp_path / "profile.md").write_text("Where the time goes\n")

    assert "](profile.md)" in write_report(make_results(), tmp_path)


def test_peers_keep_the_date_of_their_run(tmp_path: Path) -> None:
    rounds = [make_round(450)]
    peers = Peers(MACHINE, {"another, refresh": rounds}, {operations.REFRESH: rounds})

    report = write_report(make_results(peers=peers), tmp_path)

    assert "On 2026-01-31" in report.partition("## Peers")[2]
    assert "another, refresh" in (tmp_path / "peers.svg").read_text()


def test_the_report_tells_which_core_bounds_a_chain(tmp_path: Path) -> None:
    chains = [make_round(500, rate=2_000, load_seconds=0.3)]
    peers = make_peers([make_round(200, rate=3_000, load_seconds=0.35, redis_us=200)], chains)
    report = write_report(make_results(peers=peers), tmp_path).partition("## Peers")[2]

    assert read_bound(report, operations.CHAINED_REFRESH)[5:] == ["60%", "95%", "35%", "load"]
    assert read_bound(report, f"{operations.OIDC_PROVIDER}: chained refresh")[5:] == ["100%", "50%", "30%", "server"]


def test_numbers_of_another_version_are_none(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"machine": "a potato"}')

    assert load_results(tmp_path) is None
    assert load_results(tmp_path / "nowhere") is None


def test_a_chart_is_a_drawing_whose_longest_bar_fills_it() -> None:
    chart = ElementTree.fromstring(draw_bars("A & B", "µs", [Bar("a <b>", 10, "ours"), Bar("c", 5, "floor")]))

    widths = [float(bar.attrib["width"]) for bar in chart.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths[0] == 2 * widths[1]
    assert chart.attrib["aria-label"] == "A & B"
