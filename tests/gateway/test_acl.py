"""The Redis user of a gateway: it looks bearer tokens up and hears which keys change, and can do nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from service.crypto.keyring import make_access_token
from service.gateway import BearerLookup
from service.gateway.access_record import access_key
from tests.faults.deployment import Deployment, start_sessions, worker_on
from tests.gateway.acl import ACL_FILE
from tests.support.redis_users import WITHOUT_RIGHTS, find_allowed
from tests.support.servers import stop

ALLOWED = {"get", "time", "client|tracking", "client|caching", "cluster|slots", "cluster|info"}

pytestmark = pytest.mark.clause("decided-gateway-user")


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """A Redis that was started with the unchanged file."""
    deployment = Deployment(tmp_path, "--aclfile", str(ACL_FILE))
    yield deployment
    deployment.store.close()
    stop(deployment.redis.process)


@pytest.mark.usefixtures("held_time")  # memory, and so how often Redis is asked, depends on the time
async def test_gateway_redis_user_can_look_up_and_track(deployment: Deployment) -> None:
    bearer = BearerLookup(deployment.redis.url.replace("//", "//gateway:change-me@"))
    async with worker_on(deployment) as worker:
        tokens = [token for token, _ in await start_sessions(worker, "carol@example.com", 3)]
        reads = deployment.count_calls("get")
        for _ in range(3):
            assert all([await bearer.lookup(token) for token in tokens])
        assert deployment.count_calls("get") == reads + 2 * len(tokens)

        for key in deployment.store.scan_iter("access:*"):
            deployment.store.delete(key)

        await bearer.lookup(make_access_token("0a3").text)  # this answer comes after the invalidation
        assert not any([await bearer.lookup(token) for token in tokens])
    await bearer.close()


def test_the_gateways_user_may_give_no_other_command(deployment: Deployment) -> None:
    allowed = find_allowed(deployment.store, "gateway", access_key("0a3", "digest"))

    assert allowed - WITHOUT_RIGHTS <= ALLOWED | {name.partition("|")[0] for name in ALLOWED}
    assert allowed >= ALLOWED


def test_the_gateways_user_may_read_no_other_key(deployment: Deployment) -> None:
    with redis.Redis(port=deployment.redis.port, username="gateway", password="change-me") as gateway:
        assert gateway.get(access_key("0a3", "digest")) is None
        for kind in ("family", "code", "index", "mark", "browser", "user", "client", "realm"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                gateway.get(f"{kind}:{{0a3}}:digest")
        with pytest.raises(redis.exceptions.NoPermissionError):
            gateway.set(access_key("0a3", "digest"), "forged")
