"""The table of goals and more ambitious goals (moonshots), with the function that finds each number in the results."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import busy, floors, heartbeats, logins, lookups, operations, scale
from benchmarks.load import Round
from benchmarks.results import WHOLE, Results, cost_ratio, median_of, rate_ratio, redis_ratio

FindValue = Callable[[Results], float]


@dataclass(frozen=True)
class Goal:
    """A wanted value of one number. `find` raises KeyError if the run has not measured it.

    A goal of None marks a number that is only reported.
    """

    what: str
    goal: float | None
    moonshot: float | None
    find: FindValue
    unit: str = ""
    more_is_better: bool = True

    def measure(self, results: Results) -> float | None:
        try:
            return self.find(results)
        except KeyError:
            return None

    def judge(self, measured: float | None) -> str:
        """Return `moonshot`, `met`, `short`, `reported` or `not measured`."""
        if measured is None:
            return "not measured"
        if self.goal is None or self.moonshot is None:
            return "reported"
        if self._reaches(measured, self.moonshot):
            return "moonshot"
        return "met" if self._reaches(measured, self.goal) else "short"

    def _reaches(self, measured: float, wanted: float) -> bool:
        """Compare the number as it is printed, so that a printed 1.00 reaches 1.0."""
        rounded = round(measured, 2)
        return rounded >= wanted if self.more_is_better else rounded <= wanted


def cost_ratio_to(name: str, floor: str) -> FindValue:
    return lambda results: cost_ratio(results.series[name], results.series[floor])


def median_ratio(name: str, other: str, number: Callable[[Round], float]) -> FindValue:
    """Divide the median of one row by the median of another."""
    return lambda results: median_of(results.series[name], number) / median_of(results.series[other], number)


def redis_ratio_to(name: str, floor: str) -> FindValue:
    return lambda results: redis_ratio(results.series[name], results.series[floor])


def rate_ratio_to_peer(name: str, peer: str) -> FindValue:
    """Compare the rates of the latest run with peers."""

    def find(results: Results) -> float:
        if results.peers is None:
            raise KeyError(peer)
        peer_rounds = results.peers.series[operations.name_peer_row(peer, name)]
        return rate_ratio(results.peers.ours[name], peer_rounds)

    return find


def require(number: Callable[[Results], float | None]) -> FindValue:
    def find(results: Results) -> float:
        found = number(results)
        if found is None:
            raise KeyError
        return found

    return find


def median_of_row(name: str) -> FindValue:
    return lambda results: statistics.median(results.rows[name][WHOLE])


def _p50(round_: Round) -> float:
    return round_.p50_ms


def _p99(round_: Round) -> float:
    return round_.p99_ms


def _cost(round_: Round) -> float:
    """Return the processor time of the service and of Redis for each request."""
    return round_.server_us + round_.redis_us


GOALS = (
    Goal("refresh / [Starlette + 1 EVALSHA]", 1.3, 1.6, cost_ratio_to(operations.REFRESH, floors.EVALSHA)),
    Goal(
        "refresh, with its two lines in the log / [Starlette + 1 EVALSHA]",
        None,
        None,
        cost_ratio_to(operations.REFRESH_LOGGED, floors.EVALSHA),
    ),
    Goal(
        "refresh, Redis time / [Starlette + 1 EVALSHA], Redis time",
        2.0,
        1.5,
        redis_ratio_to(operations.REFRESH, floors.EVALSHA),
        more_is_better=False,
    ),
    Goal(
        "chained refresh, answers a second / oidc-provider",
        3.5,
        5.0,
        rate_ratio_to_peer(operations.CHAINED_REFRESH, operations.OIDC_PROVIDER),
    ),
    Goal("verify, Redis asked / [Starlette + 1 GET]", 1.1, 1.7, cost_ratio_to(operations.VERIFY_ASKING, floors.GET)),
    Goal(
        "introspect, Redis asked / [Starlette + 1 GET]",
        1.1,
        1.7,
        cost_ratio_to(operations.INTROSPECT_ASKING, floors.GET),
    ),
    Goal(
        "verify, from the worker's memory / [Starlette route]",
        0.85,
        0.95,
        cost_ratio_to(operations.VERIFY_MEMORY, floors.ROUTE),
    ),
    Goal("revoke / [Starlette + 1 EVALSHA]", 0.9, 1.4, cost_ratio_to(operations.REVOKE_SESSION, floors.EVALSHA)),
    Goal("password grant / argon2id alone", 0.92, 0.97, cost_ratio_to(logins.PASSWORD, logins.ARGON2ID)),
    Goal(
        "refresh, p99 in a storm of logins / in quiet",
        3.0,
        2.0,
        median_ratio(logins.STORM, logins.QUIET, _p99),
        more_is_better=False,
    ),
    Goal(
        "gateway's library, a check from memory",
        1.5,
        1.0,
        lambda results: results.lookups[lookups.CACHED],
        "µs",
        more_is_better=False,
    ),
    Goal(
        "refresh, p50 with one connection",
        0.45,
        0.35,
        lambda results: median_of(results.series[operations.REFRESH_ALONE], _p50),
        "ms",
        more_is_better=False,
    ),
    Goal(
        "refresh, p99 / p50 with 64 connections",
        2.5,
        1.7,
        lambda results: median_of(results.series[operations.REFRESH], lambda one: one.p99_ms / one.p50_ms),
        more_is_better=False,
    ),
    Goal(
        "Redis, a session with one live access token",
        650,
        560,
        require(lambda results: results.bytes_per_session),
        "bytes",
        more_is_better=False,
    ),
    Goal(
        "Redis, the same with ten live access tokens",
        3_300,
        2_800,
        require(lambda results: results.bytes_of_ten_tokens),
        "bytes",
        more_is_better=False,
    ),
    Goal(
        "Redis, what a rotation leaves behind",
        0,
        0,
        require(lambda results: results.growth_per_rotation),
        "bytes",
        more_is_better=False,
    ),
    Goal(
        busy.BUSY,
        1.3,
        1.0,
        require(lambda results: results.busy_ratio),
        more_is_better=False,
    ),
    Goal("a worker (PSS)", 55, 45, require(lambda results: results.worker_mib), "MiB", more_is_better=False),
    Goal(
        "a console command, start to end",
        0.25,
        0.15,
        require(lambda results: results.console_seconds),
        "s",
        more_is_better=False,
    ),
    Goal(
        "the same: processor time of the command",
        None,
        None,
        require(lambda results: results.console_processor_seconds),
        "s",
    ),
    Goal(
        "two workers / one, refreshes a second",
        None,
        None,
        lambda results: rate_ratio(results.series[scale.TWO_WORKERS], results.series[scale.ONE_WORKER]),
    ),
    Goal(
        "a million sessions / a thousand: p50 of a refresh",
        1.1,
        1.0,
        median_ratio(scale.MANY, scale.FEW, _p50),
        more_is_better=False,
    ),
    Goal(
        "the same: processor time, with that of Redis",
        1.1,
        1.0,
        median_ratio(scale.MANY, scale.FEW, _cost),
        more_is_better=False,
    ),
    Goal(heartbeats.COMMANDS, 4.0, 2.0, median_of_row(heartbeats.COMMANDS), more_is_better=False),
    Goal(heartbeats.SHARE, None, None, median_of_row(heartbeats.SHARE), "%", more_is_better=False),
)
