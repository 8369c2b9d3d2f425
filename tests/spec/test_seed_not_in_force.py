"""While the seed file is not in force, no refusal is final, and a failed try still counts."""

from collections.abc import AsyncIterator

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.support.clients_and_users import ALICE, PHONE_APP, WEB_SHOP, OAuthClient, UserCredentials

pytestmark = pytest.mark.clause("decided-seed-not-in-force")


@pytest.fixture(autouse=True)
async def unseeded(worker: Worker, http: httpx2.AsyncClient, store: redis.Redis) -> AsyncIterator[None]:
    """Another process applies the seed, which takes long."""
    async with worker.registry.make_lock_for("seed"):
        store.hdel("seed:{registry}", "file")
        yield


@pytest.mark.parametrize("user", [UserCredentials(ALICE.username, "wrong"), UserCredentials("nobody@example.com", "x")])
async def test_a_failed_login_is_answered_503_and_counts(
    http: httpx2.AsyncClient, store: redis.Redis, user: UserCredentials
) -> None:
    answers = [await PHONE_APP.log_in(http, user) for _ in range(11)]

    assert [answer.status_code for answer in answers] == [503] * 10 + [429]
    assert answers[0].json()["error"] == "temporarily_unavailable"
    assert answers[0].headers["Retry-After"] == "1"


async def test_login_in_a_realm_before_the_seed_is_503(http: httpx2.AsyncClient) -> None:
    answer = await PHONE_APP.log_in(http, UserCredentials("carol", "x", "cep"))

    assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")


@pytest.mark.parametrize("client_id", [WEB_SHOP.client_id, "unknown"])
async def test_a_failed_client_authentication_is_answered_503(http: httpx2.AsyncClient, client_id: str) -> None:
    answer = await OAuthClient(client_id, "wrong").log_in(http, ALICE)

    assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")


async def test_seeded_users_log_in_during_a_seed(http: httpx2.AsyncClient) -> None:
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
    assert (await http.get("/healthz")).status_code == 200
    ready = await http.get("/readyz")

    assert (ready.status_code, set(ready.json())) == (503, {"status", "done", "of"})


async def test_page_of_an_unknown_client_is_temporary(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/authorization/?client_id=unknown&response_type=code")

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
