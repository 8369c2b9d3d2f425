"""Users behind Sentinel: those of replication and of the Sentinels, and what the Sentinels themselves are told."""

from dataclasses import replace
from pathlib import Path

import pytest
import redis

from service.crypto.keyring import make_access_token
from service.gateway import BearerLookup
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.sentinels import Sentinels
from service.redis_client.url import Durability, RedisUrl, parse_redis_url
from service.store.client import StoreClient
from service.store.events import EventStream
from service.store.reports.readiness import find_obstacle
from tests.cluster.nodes import MASTER_NAME, OPERATOR, running_sentinel
from tests.cluster.workers import worker_at
from tests.support.loop_time import LoopTime
from tests.support.redis_users import find_refusals
from tests.support.servers import CHECKOUT, PASSWORD, knows_users, server_binary
from tests.support.waiting import until, until_reachable

USERS = (CHECKOUT / "examples" / "redis-sentinel.acl").read_text().splitlines()
AS_REPLICA = ("--masteruser", "replica", "--masterauth", PASSWORD)
AS_SENTINEL = (f"sentinel auth-user {MASTER_NAME} sentinel", f"sentinel auth-pass {MASTER_NAME} {PASSWORD}")

pytestmark = [
    pytest.mark.clause("decided-redis-users", "decided-redis-sentinel"),
    pytest.mark.skipif(not knows_users(server_binary()), reason="Redis 6.2 cannot load the files of all users"),
]


async def test_redis_users_may_perform_a_failover(tmp_path: Path, loop_time: LoopTime) -> None:
    """And the service is back on the replica, which has the users as well."""
    with (
        running_sentinel(tmp_path, options=AS_REPLICA, watching=AS_SENTINEL) as watched,
        watched.master.connect() as master,
        watched.replica.connect() as replica,
        redis.Redis(port=watched.sentinel_port) as sentinel,
    ):
        async with worker_at(watched.url_of("service")) as worker:
            assert await find_obstacle(worker.redis) is None
            assert {client["user"] for client in master.client_list()} >= {"replica", "sentinel", "service"}
            await confirm_something(watched.url_of("service"))

            sentinel.sentinel_failover(MASTER_NAME)
            await until(lambda: replica.info("replication")["role"] == "master")

            with loop_time.running_at(1):
                await until_reachable(worker)
            assert await find_obstacle(worker.redis) is None
        for server in (master, replica):
            assert find_refusals(server, {"service", "replica", "sentinel"}) == []


async def confirm_something(url: str) -> None:
    """Confirm a write as TOKEN_SERVICE_DURABILITY=replica does."""
    connection = StoreClient(parse_redis_url(url), durability=Durability("replica"))
    async with connection.durable("0a3") as scripts:
        await scripts.leave_fence()
    await connection.close()


@pytest.mark.parametrize(
    ("lines", "user"),
    [(("user default off", OPERATOR, *USERS), "service:"), (("requirepass change-me", OPERATOR), ":")],
    ids=["users", "password"],
)
async def test_sentinel_gets_the_password_of_the_url(tmp_path: Path, lines: tuple[str, ...], user: str) -> None:
    with running_sentinel(tmp_path, watching=lines) as watched:
        url = watched.url.replace("//", f"//{user}{PASSWORD}@")
        async with worker_at(url) as worker:
            assert await find_obstacle(worker.redis) is None
        await confirm_something(url)
        reader = StoreClient(parse_redis_url(url.replace("service:", "events:")))
        assert await EventStream(reader).read() == []
        await reader.close()
        bearer = BearerLookup(url)
        assert await bearer.lookup(make_access_token("0a3").text) is None
        await bearer.close()


async def test_sentinel_gets_a_password_that_has_changed(tmp_path: Path) -> None:
    def read_url(password: str) -> RedisUrl:
        return parse_redis_url(watched.url.replace("//", f"//:{password}@"))

    with (
        running_sentinel(tmp_path, watching=("requirepass change-me", OPERATOR)) as watched,
        redis.Redis(port=watched.sentinel_port, username="operator", password=PASSWORD) as sentinel,
    ):
        current = PASSWORD
        sentinels = Sentinels(replace(read_url(current), read_again=lambda: read_url(current)))
        master = await sentinels.get_master()
        current = "changed"
        sentinel.acl_setuser("default", enabled=True, passwords=f"+{current}", reset_passwords=True)
        sentinel.execute_command("CLIENT", "KILL", "USER", "default")

        with pytest.raises(StoreUnavailable, match="closed"):  # the loss is noticed at the next query
            await sentinels.get_master()
        assert await sentinels.get_master() == master
        await sentinels.close()
