"""The same code on three masters: every script finds all its keys in one slot, whichever node that is."""

import asyncio
from collections.abc import Sequence
from functools import partial

import httpx2
import pytest
from msgspec.structs import replace

from service.protocol.user import identify_user
from service.worker import Worker
from tests.admin.conftest import type_in
from tests.cluster.nodes import Cluster
from tests.cluster.sessions import PEOPLE, Tokens, is_known, start_session
from tests.conftest import SECRET_KEY, make_code
from tests.faults.deployment import LATEST_SECONDS
from tests.support.clients_and_users import (
    ALICE,
    PHONE_APP,
    PHONE_CALLBACK,
    UserCredentials,
    assert_error,
    revoke_all,
    tokens_of,
)
from tests.support.loop_time import LoopTime
from tests.support.waiting import until, until_status


async def register(worker: Worker, people: Sequence[UserCredentials]) -> None:
    """All with Alice's password, whose hash costs something."""
    alice = await worker.registry.users.find(identify_user(ALICE.realm, ALICE.username))
    assert alice is not None
    for credentials in people:
        await worker.registry.users.put(replace(alice, username=credentials.username))


@pytest.mark.clause("decided-i4-one-slot", "decided-redis-cluster")
async def test_the_users_of_this_file_are_spread_over_all_nodes(cluster: Cluster) -> None:
    """Otherwise the tests below would prove nothing."""
    assert {cluster.node_of(node_key(credentials)) for credentials in PEOPLE} == {0, 1, 2}


@pytest.mark.clause("decided-i4-three-masters", "decided-i4-one-slot", "decided-redis-cluster")
async def test_every_transition_of_every_user_stays_in_one_slot(
    cluster: Cluster, cluster_http: httpx2.AsyncClient, cluster_worker: Worker
) -> None:
    """A key in another slot would be refused by Redis, and the answer would be 500."""
    await register(cluster_worker, PEOPLE)

    async def live(credentials: UserCredentials) -> None:
        http = cluster_http
        first, second = [await start_session(cluster_worker, credentials) for _ in range(2)]
        refreshed = dict(tokens_of(await PHONE_APP.refresh(http, first["refresh_token"])))
        replayed = dict(tokens_of(await PHONE_APP.refresh(http, first["refresh_token"])))
        assert refreshed["refresh_token"] == replayed["refresh_token"]
        code = await make_code(cluster_worker, credentials)
        exchanged = dict(tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK)))
        assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
        assert is_known(cluster, exchanged) == (False, False)

        assert (await PHONE_APP.revoke(http, replayed["access_token"])).status_code == 200
        assert is_known(cluster, replayed) == (False, True)
        assert (await PHONE_APP.revoke(http, second["refresh_token"])).status_code == 200
        assert is_known(cluster, second) == (False, False)

        code = await make_code(cluster_worker, credentials)
        assert (await revoke_all(http, refreshed["access_token"])).status_code == 200
        for tokens in (first, refreshed, replayed):
            assert is_known(cluster, tokens) == (False, False)
        assert_error(await PHONE_APP.refresh(http, refreshed["refresh_token"]), 400, "invalid_grant")
        assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
        assert is_known(cluster, await start_session(cluster_worker, credentials)) == (True, True)

    await asyncio.gather(*(live(credentials) for credentials in PEOPLE))


@pytest.mark.clause("decided-redis-cluster", "decided-redis-away", "decided-i8-fail-closed")
async def test_lost_node_affects_only_its_own_users(
    cluster: Cluster, cluster_http: httpx2.AsyncClient, cluster_worker: Worker, held_time: LoopTime
) -> None:
    with_registry = cluster.node_of("client:{registry}:phone-app")
    away = (with_registry + 1) % len(cluster.nodes)
    sessions = [(credentials, await start_session(cluster_worker, credentials)) for credentials in PEOPLE]
    lost = {credentials for credentials in PEOPLE if cluster.node_of(node_key(credentials)) == away}

    async def refresh(tokens: Tokens) -> int:
        return (await PHONE_APP.refresh(cluster_http, tokens["refresh_token"])).status_code

    for _, tokens in sessions:  # for these requests the service is connected to all nodes
        assert await refresh(tokens) == 200
    with cluster.nodes[away].frozen():
        asked = {credentials: asyncio.create_task(refresh(tokens)) for credentials, tokens in sessions}
        await until(lambda: {credentials for credentials in PEOPLE if not asked[credentials].done()} == lost)
        await held_time.advance_in_steps(LATEST_SECONDS)
        assert all(task.done() for task in asked.values())
        alive = await cluster_http.get("/healthz")

    assert {credentials: task.result() for credentials, task in asked.items()} == {
        credentials: 503 if credentials in lost else 200 for credentials in PEOPLE
    }
    assert alive.status_code == 200
    with held_time.running_at(1):
        for _, tokens in sessions:
            await until_status(partial(PHONE_APP.refresh, cluster_http, tokens["refresh_token"]), 200)


@pytest.mark.clause("decided-redis-cluster")
async def test_the_console_counts_on_all_masters(
    cluster: Cluster, cluster_http: httpx2.AsyncClient, cluster_worker: Worker
) -> None:
    for credentials in PEOPLE:
        await start_session(cluster_worker, credentials)
    environment = {"REDIS_URL": cluster.url_of("console"), "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY}

    told = (await asyncio.to_thread(type_in, "stats", "--json", environment=environment)).json

    assert (told["sessions"], told["access_tokens"], told["masters"]) == (len(PEOPLE), len(PEOPLE), 3)
    assert told["bytes_per_session"] > 0


def node_key(credentials: UserCredentials) -> str:
    return f"family:{{{identify_user(credentials.realm, credentials.username).shard}}}:x"
