"""The console on three masters: what looks at everything looks at all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx2
import pytest

from service.worker import Worker
from tests.admin.conftest import Answer, type_in
from tests.cluster.nodes import Cluster
from tests.cluster.sessions import PEOPLE, is_known, start_session
from tests.conftest import SECRET_KEY
from tests.support.clients_and_users import ALICE, PHONE_APP, WEB_SHOP

Admin = Callable[..., Awaitable[Answer]]

pytestmark = pytest.mark.clause("decided-redis-cluster")


@pytest.fixture
def admin(cluster: Cluster) -> Admin:
    environment = {"REDIS_URL": cluster.url_of("console"), "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY}

    async def run(*words: str) -> Answer:
        answer = await asyncio.to_thread(type_in, *words, environment=environment)
        assert answer.status == 0, answer.aside
        return answer

    return run


async def test_everything_is_counted_and_looked_at(
    admin: Admin, cluster_http: httpx2.AsyncClient, cluster_worker: Worker
) -> None:
    for credentials in PEOPLE:
        await start_session(cluster_worker, credentials)

    told = (await admin("stats", "--json")).json
    found = (await admin("doctor", "--json")).json

    assert (told["sessions"], told["access_tokens"], told["masters"]) == (len(PEOPLE), len(PEOPLE), 3)
    assert told["bytes_per_session"] > 0
    assert {"level": "good", "subject": "keys", "says": "all that should expire will"} in found


async def test_mass_logout_reaches_all_masters(
    admin: Admin, cluster: Cluster, cluster_http: httpx2.AsyncClient, cluster_worker: Worker
) -> None:
    everybody = [await start_session(cluster_worker, credentials) for credentials in PEOPLE]

    await admin("revoke-all", "--everything", "--yes")

    assert {is_known(cluster, tokens) for tokens in everybody} == {(False, False)}


async def test_a_deleted_client_and_a_disabled_user_lose_all_that_they_had(
    admin: Admin, cluster: Cluster, cluster_http: httpx2.AsyncClient, cluster_worker: Worker
) -> None:
    shops = [await start_session(cluster_worker, credentials, "web-shop") for credentials in PEOPLE]
    alices = (await PHONE_APP.log_in(cluster_http, ALICE)).json()

    await admin("client", "delete", "web-shop", "--yes")
    await admin("user", "disable", ALICE.username, "--yes")

    assert {is_known(cluster, tokens) for tokens in (*shops, alices)} == {(False, False)}
    assert (await PHONE_APP.log_in(cluster_http, ALICE)).status_code == 400
    assert (await WEB_SHOP.log_in(cluster_http, ALICE)).status_code == 401
    told = (await admin("events", "--json")).lines
    assert [event["event"] for event in told][-2:] == ["client_deleted", "user_disabled"]
