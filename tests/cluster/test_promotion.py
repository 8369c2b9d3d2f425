"""A revocation that was answered is at every replica that Sentinel could promote."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import redis

from tests.cluster.nodes import MASTER_NAME, Watched, running_sentinel
from tests.cluster.workers import service_at
from tests.support.clients_and_users import ALICE, PHONE_APP, access_key_of, assert_error, revoke_user, tokens_of
from tests.support.loop_time import LoopTime
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.clause("decided-durability", "decided-redis-sentinel", "decided-i7-revocation-is-final")

CONTENDERS = 50


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with running_sentinel(tmp_path, replicas=2, sentinels=3) as watched:
        yield watched


def knows(server: RedisServer, access_token: str) -> bool:
    with server.connect() as client:
        return bool(client.exists(access_key_of(access_token)))


def set_priority(watched: Watched, priority: int) -> None:
    """Set the priority of the second replica, and wait until all Sentinels know it."""
    with watched.replicas[1].connect() as client:
        client.config_set("replica-priority", priority)
    wait_until_reported(watched, "slave-priority", priority)


def wait_until_reported(watched: Watched, field: str, value: object) -> None:
    """Wait until each Sentinel reports this of a replica."""
    for sentinel in watched.sentinels:
        with sentinel.connect() as client:
            wait_until(lambda client=client: value in read_reports(client, field), f"the Sentinels to report a {field}")


def read_reports(sentinel: redis.Redis, field: str) -> set[object]:
    return {each[field] for each in sentinel.sentinel_slaves(MASTER_NAME)}


async def log_in(http: httpx2.AsyncClient) -> str:
    return str(tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"])


@pytest.mark.parametrize("priority", [100, 0], ids=["could be promoted", "is never promoted"])
async def test_one_of_two_replicas_confirms_nothing(watched: Watched, loop_time: LoopTime, priority: int) -> None:
    """Sentinel promotes a replica a second before it names the new master. The other replica follows the old one."""
    set_priority(watched, priority)
    async with service_at(watched.url, "replica") as (_, http):
        tokens = [await log_in(http) for _ in range(CONTENDERS)]
        watched.wait_until_copied()
        promoted = watched.replica
        with promoted.connect() as client:
            client.replicaof("NO", "ONE")
        wait_until_reported(watched, "role-reported", "master")
        with loop_time.running_at(1):
            answers = await asyncio.gather(
                *(PHONE_APP.revoke(http, token) for token in tokens),
                revoke_user(http, {"format": "email", "email": ALICE.username}),
            )
        for token, answer in zip([*tokens, tokens[0]], answers, strict=True):
            if not answer.is_success:
                assert_error(answer, 503, "temporarily_unavailable")
            else:
                assert not knows(promoted, token)
