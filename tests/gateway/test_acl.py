"""The Redis user of a gateway: it looks bearer tokens up and hears which keys change, and can do nothing else."""

import hashlib
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from service.crypto.keyring import make_access_token
from service.gateway import BearerLookup
from service.gateway.access_record import access_key
from tests.conftest import Clock, MakeSettings, serving
from tests.faults.deployment import Deployment, start_sessions, worker_on
from tests.gateway.acl import ACL_FILE
from tests.support.browser import Browser, authorization_url
from tests.support.clients_and_users import ALICE, PHONE_APP, WEB_SHOP
from tests.support.redis_users import WITHOUT_RIGHTS, find_allowed
from tests.support.servers import RedisServer, knows_users, server_binary, stop

ALLOWED = {"get", "time", "client|tracking", "client|caching", "cluster|slots", "cluster|info"}

pytestmark = [
    pytest.mark.clause("decided-gateway-user"),
    pytest.mark.skipif(not knows_users(server_binary()), reason="Redis 6.2 cannot load the files of all users"),
]


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


@pytest.mark.clause("decided-callers-hidden")
@pytest.mark.single_server
@pytest.mark.parametrize(
    ("address", "networks"),
    [
        ("198.51.100.7", ["198.51.100.7"]),
        ("2001:db8:5:6::7", ["2001:db8:5:6::/64", "2001:db8:5::/56", "2001:db8:5::/48"]),
    ],
)
async def test_a_gateway_does_not_hear_where_a_caller_is(
    redis_server: RedisServer,
    make_settings: MakeSettings,
    clock: Clock,
    registry: None,
    address: str,
    networks: list[str],
) -> None:
    """Every account can hear the names of all keys that change."""
    with socket.create_connection(("127.0.0.1", redis_server.port)) as gateway:
        password = re.search("gateway:(.+)@", redis_server.url_of("gateway"))
        assert password is not None
        gateway.sendall(f"HELLO 3 AUTH gateway {password[1]}\r\nCLIENT TRACKING ON BCAST\r\n".encode())
        gateway.recv(1)
        async with serving(make_settings(), clock, address=address) as http:
            for user in (replace(ALICE, password="wrong"), ALICE):
                await PHONE_APP.log_in(http, user)
            await replace(WEB_SHOP, client_secret="wrong").log_in(http, ALICE)
            await Browser(http).open_consent_page(authorization_url())
        gateway.sendall(b"QUIT\r\n")
        heard = b"".join(iter(lambda: gateway.recv(65536), b"")).decode()
    names = re.findall(r"\n((?:lease:)?(?:login|address):[^\r]+)", heard)
    forms = [address, *networks, *(hashlib.sha256(each.encode()).hexdigest()[:16] for each in networks)]

    for kind in (r"lease:login:.+:\w+", "address:.+:login", "address:.+:client:", "address:.+:page"):
        assert [name for name in names if re.match(kind, name)], kind
    assert [name for name in names if any(form in name for form in forms)] == []


def test_the_gateways_user_may_give_no_other_command(deployment: Deployment) -> None:
    allowed = find_allowed(deployment.store, "gateway", access_key("0a3", "digest"))

    assert allowed - WITHOUT_RIGHTS <= ALLOWED | {name.partition("|")[0] for name in ALLOWED}
    assert allowed >= ALLOWED


def test_the_gateways_user_may_read_no_other_key(deployment: Deployment) -> None:
    with redis.Redis(port=deployment.redis.port, username="gateway", password="change-me") as gateway:
        assert gateway.get(access_key("0a3", "digest")) is None
        for kind in ("family", "code", "login", "address", "index", "mark", "browser", "user", "client", "realm"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                gateway.get(f"{kind}:{{0a3}}:digest")
        with pytest.raises(redis.exceptions.NoPermissionError):
            gateway.set(access_key("0a3", "digest"), "forged")
