"""Random histories go as the model does, and find faults that are planted in the scripts."""

import pytest

from tests.conftest import AnyRedis
from tests.invariants.exploration import count_histories_until_found, explore
from tests.invariants.histories import Course


@pytest.mark.clause("decided-sessions-per-user", "decided-i2-one-head", "decided-i7-revocation-is-final")
@pytest.mark.clause("decided-i6-everything-expires")
@pytest.mark.parametrize("histories", [60, pytest.param(1_000, marks=pytest.mark.long)])
def test_random_histories_go_as_the_design_says(redis_server: AnyRedis, histories: int) -> None:
    """Prints a seed and the shortest history it finds when one goes differently."""
    explore(redis_server, Course(""), histories)


@pytest.mark.parametrize("fault", ["the grace is inverted", "a revokeAll ignores that its mark is lost"])
def test_random_histories_find_a_planted_fault(redis_server: AnyRedis, fault: str) -> None:
    assert count_histories_until_found(redis_server, fault, "1") is not None
