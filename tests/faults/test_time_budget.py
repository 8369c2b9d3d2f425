"""The time budget of a request ends with it."""

from __future__ import annotations

import httpx2

from service.redis_client.deadline import DEADLINE_SECONDS, remaining_seconds
from tests.support.clients_and_users import ALICE, PHONE_APP


async def test_a_request_leaves_no_budget_to_its_caller(http: httpx2.AsyncClient) -> None:
    """The client of the tests calls the application in this process, and the test goes on to call the store itself."""
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200

    assert remaining_seconds() == DEADLINE_SECONDS
