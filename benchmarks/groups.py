"""Groups of measurements for the bounds. Each group has a Redis of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from benchmarks.changes import measure_changes
from benchmarks.costs import measure_costs
from benchmarks.failovers import measure_failovers
from benchmarks.following import measure_following
from benchmarks.heartbeats import measure_heartbeats
from benchmarks.lag import measure_lag
from benchmarks.neighbours import measure_caller_latencies
from benchmarks.outages import measure_outages
from benchmarks.parsers import measure_parsers
from benchmarks.providers import measure_providers
from benchmarks.refusals import measure_refusals
from benchmarks.results import Results, Rows
from benchmarks.revocations import measure_revocations
from benchmarks.seeds import measure_seeds
from benchmarks.slots import measure_slots
from benchmarks.steps import measure_steps
from benchmarks.testbed import Testbed, running_testbed


@dataclass(frozen=True)
class Group:
    """A measurement and its rounds. `measure` gets the number of rounds.

    A quick run uses `quick_rounds`. If they are None, it leaves the group out.
    """

    measure: Callable[[Testbed, int], Rows]
    rounds: int
    quick_rounds: int | None = None


GROUPS = {
    "costs": Group(measure_costs, rounds=40, quick_rounds=5),
    "refusals": Group(measure_refusals, rounds=8, quick_rounds=3),
    "parsers": Group(lambda _, rounds: measure_parsers(rounds), rounds=5, quick_rounds=3),
    "steps": Group(measure_steps, rounds=9, quick_rounds=3),
    "seeds": Group(measure_seeds, rounds=1),
    "revocations": Group(measure_revocations, rounds=5),
    "organisations": Group(measure_providers, rounds=3),
    "changes": Group(measure_changes, rounds=5),
    "lag": Group(measure_lag, rounds=3),
    "outages": Group(measure_outages, rounds=3),
    "failovers": Group(lambda _, rounds: measure_failovers(rounds), rounds=3),
    "following": Group(lambda _, rounds: measure_following(rounds), rounds=3),
    "slots": Group(lambda _, rounds: measure_slots(rounds), rounds=3),
    "heartbeats": Group(measure_heartbeats, rounds=3),
}
NEIGHBOURS = "neighbours"
ALL = (*GROUPS, NEIGHBOURS)


def choose_groups(*, quick: bool) -> Collection[str]:
    """Return the names of the groups of a run."""
    return [name for name, group in GROUPS.items() if group.quick_rounds] if quick else ALL


def measure_group(results: Results, name: str, folder: Path, *, quick: bool) -> None:
    """Measure one group and add its values to the results."""
    if name == NEIGHBOURS:
        results.notices = measure_caller_latencies(folder)
        return
    group = GROUPS[name]
    rounds = group.quick_rounds if quick and group.quick_rounds else group.rounds
    with running_testbed(folder, name) as testbed:
        results.rows |= group.measure(testbed, rounds)
