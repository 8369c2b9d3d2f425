"""The console on three masters: what looks at everything looks at all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx2
import pytest

from service.worker import Worker
from tests.admin.conftest import Answer, type_in
from tests.cluster.nodes import Cluster
from tests.cluster.sessions import PEOPLE, start_session
from tests.conftest import SECRET_KEY

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
