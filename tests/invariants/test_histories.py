"""Random histories go as the model does, and find faults that are planted in the scripts."""

import secrets

import pytest

from tests.conftest import AnyRedis
from tests.invariants.exploration import count_histories_until_found, playing
from tests.invariants.histories import draw_history


@pytest.mark.clause("decided-sessions-per-user", "decided-i2-one-head", "decided-i7-revocation-is-final")
@pytest.mark.clause("decided-i6-everything-expires")
@pytest.mark.parametrize(
    ("seed", "histories"), [("bounded", 40), pytest.param(secrets.token_hex(4), 1_000, marks=pytest.mark.long)]
)
def test_random_histories_go_as_the_design_says(redis_server: AnyRedis, seed: str, histories: int) -> None:
    with playing(redis_server) as play:
        assert sum(play(draw_history(f"{seed} {number}")) for number in range(histories)) > 20 * histories


@pytest.mark.parametrize("fault", ["the grace is inverted", "a revokeAll ignores that its mark is lost"])
def test_random_histories_find_a_planted_fault(redis_server: AnyRedis, fault: str) -> None:
    with playing(redis_server) as play:
        assert count_histories_until_found(play, fault, "bounded") is not None
