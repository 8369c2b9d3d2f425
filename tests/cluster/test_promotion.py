"""A revocation that was answered is at every replica that Sentinel could promote."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.cluster.nodes import Watched, running_sentinel
from tests.cluster.workers import service_at
from tests.support.clients_and_users import ALICE, PHONE_APP, access_key_of, assert_error, tokens_of
from tests.support.loop_time import LoopTime
from tests.support.servers import RedisServer

pytestmark = pytest.mark.clause("decided-durability", "decided-redis-sentinel", "decided-i7-revocation-is-final")

CONTENDERS = 50


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with running_sentinel(tmp_path, replicas=2, sentinels=3) as watched:
        yield watched


def knows(server: RedisServer, access_token: str) -> bool:
    with server.connect() as client:
        return bool(client.exists(access_key_of(access_token)))


async def log_in(http: httpx2.AsyncClient) -> str:
    return str(tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"])


async def test_one_of_two_replicas_confirms_nothing(watched: Watched, loop_time: LoopTime) -> None:
    """Sentinel promotes a replica a second before it names the new master. The other replica follows the old one."""
    async with service_at(watched.url, "replica") as (_, http):
        tokens = [await log_in(http) for _ in range(CONTENDERS)]
        watched.wait_until_copied()
        promoted = watched.replica
        with promoted.connect() as client:
            client.replicaof("NO", "ONE")
        with loop_time.running_at(1):
            answers = await asyncio.gather(*(PHONE_APP.revoke(http, token) for token in tokens))
        for token, answer in zip(tokens, answers, strict=True):
            if answer.status_code != 200:
                assert_error(answer, 503, "temporarily_unavailable")
            else:
                assert not knows(promoted, token)
