"""An unknown user costs the same work as a wrong password, over HTTP: time tells nobody who has an account."""

from __future__ import annotations

import time
from dataclasses import replace

import httpx2
import pytest

from tests.cast import ALICE, PHONE_APP, Person

ROUNDS = 8


async def fastest_seconds(http: httpx2.AsyncClient, persons: list[Person]) -> list[float]:
    """The shortest time of an answer to each; other work on the machine can only lengthen the others."""
    fastest = [float("inf")] * len(persons)
    for _ in range(ROUNDS):
        for number, person in enumerate(persons):
            started = time.perf_counter()
            response = await PHONE_APP.log_in(http, person)
            fastest[number] = min(fastest[number], time.perf_counter() - started)

            assert response.status_code == 400
    return fastest


@pytest.mark.clause("decided-unknown-user-costs-the-same")
@pytest.mark.parametrize(
    "password", [pytest.param("wrong", id="a usual password"), pytest.param("x" * 2000, id="a very long one")]
)
async def test_an_unknown_user_takes_as_long_as_a_wrong_password(http: httpx2.AsyncClient, password: str) -> None:
    known, unknown = await fastest_seconds(
        http, [replace(ALICE, password=password), Person("nobody@example.com", password)]
    )

    assert 0.5 < unknown / known < 2
