"""An unknown user costs the same work as a wrong password, over HTTP: time tells nobody who has an account."""

from __future__ import annotations

import time
from dataclasses import replace

import httpx2
import pytest

from service.app import Parts
from service.hashing import hash_password
from service.protocol.user import User
from tests.cast import ALICE, PHONE_APP, Person

pytestmark = pytest.mark.usefixtures("real_hashes")

ROUNDS = 8


async def least_work(http: httpx2.AsyncClient, persons: list[Person]) -> list[float]:
    """The least processor time that an answer to each took: what else the machine does, does not count."""
    least = [float("inf")] * len(persons)
    for _ in range(ROUNDS):
        for number, person in enumerate(persons):
            started = time.process_time()
            response = await PHONE_APP.log_in(http, person)
            least[number] = min(least[number], time.process_time() - started)

            assert response.status_code == 400
    return least


@pytest.mark.clause("decided-unknown-user-costs-the-same")
@pytest.mark.parametrize(
    "password", [pytest.param("wrong", id="a usual password"), pytest.param("x" * 2000, id="a very long one")]
)
async def test_an_unknown_user_takes_the_work_of_a_wrong_password(
    http: httpx2.AsyncClient, parts: Parts, password: str
) -> None:
    await parts.registry.put_users([User(realm="main", username=ALICE.username, password_hash=hash_password("right"))])
    known, unknown = await least_work(http, [replace(ALICE, password=password), Person("nobody@example.com", password)])

    assert 0.4 < unknown / known < 2.5
