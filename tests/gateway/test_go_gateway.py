"""The example gateway in Go, a second implementation of docs/reference/access-token-record.md, and its vectors."""

import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from service.gateway.access_record import access_key, parse_grant
from service.protocol.token_form import digest_token, is_access_token, parse_access_token
from service.protocol.user import identify_user
from service.redis_client.deadline import StoreUnavailable
from tests.conftest import read_server_ms
from tests.faults.deployment import Deployment, start_sessions, worker_on
from tests.support.clients_and_users import access_key_of
from tests.support.left_out import get_program
from tests.support.servers import CHECKOUT, free_port, stop
from tests.support.waiting import until_status, wait_until

EXAMPLE = CHECKOUT / "examples" / "gateway-go"
VECTORS: dict[str, Any] = json.loads((EXAMPLE / "vectors.json").read_text())
USERNAME = "alice@example.com"

pytestmark = pytest.mark.clause("decided-record-version")


def test_vectors_are_those_of_the_library() -> None:
    for live in VECTORS["live"]:
        token, expected = live["token"], live["grant"]
        assert is_access_token(token)
        assert live["key"] == access_key(token[6:9], digest_token(token))
        grant = parse_grant(live["record"].encode())
        assert (grant.issued_at_ms, grant.expires_at_ms) == (expected["issued_ms"], expected["expires_ms"])
        fields = (grant.family_digest, grant.client_id, grant.subject, grant.username, grant.scope)
        assert fields == tuple(expected[name] for name in ("session", "client_id", "subject", "username", "scope"))
    assert not any(map(is_access_token, VECTORS["malformed"]))
    for record in VECTORS["outages"]:
        with pytest.raises(StoreUnavailable):
            parse_grant(record.encode())


@pytest.fixture(scope="module")
def go_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache = str(tmp_path_factory.mktemp("go"))
    return os.environ | {"GOCACHE": cache, "GOPATH": cache, "GOPROXY": "off", "GOFLAGS": "-mod=readonly"}


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path, "--enable-debug-command", "yes")
    yield deployment
    deployment.close()


@pytest.fixture
def gateway(deployment: Deployment, tmp_path: Path, go_environment: dict[str, str]) -> Iterator[str]:
    """Build and start the example as the Redis user of gateways. Returns its URL."""
    program = tmp_path / "gateway"
    subprocess.run([get_program("go"), "build", "-o", program, "."], cwd=EXAMPLE, env=go_environment, check=True)
    listen = f"127.0.0.1:{free_port()}"
    environment = {"REDIS_URL": deployment.redis.url_of("gateway"), "LISTEN": listen}
    with (tmp_path / "gateway.log").open("wb") as log:
        process = subprocess.Popen([program], stderr=log, env=environment)
    wait_until(lambda: is_open(listen), "the gateway listens")
    yield f"http://{listen}"
    stop(process)


def is_open(address: str) -> bool:
    host, port = address.split(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


@pytest.mark.long
def test_go_code_is_clean_and_meets_the_vectors(go_environment: dict[str, str]) -> None:
    for words in (["go", "vet", "."], ["go", "test", "."]):
        subprocess.run([get_program(words[0]), *words[1:]], cwd=EXAMPLE, env=go_environment, check=True)
    assert subprocess.check_output([get_program("gofmt"), "-l", "."], cwd=EXAMPLE) == b""


class Caller:
    """Asks the gateway for a status with an access token."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self._http = http
        self._url = url

    async def ask(self, access_token: str) -> httpx2.Response:
        return await self._http.get(self._url, headers={"Authorization": f"Bearer {access_token}"})

    async def until(self, access_token: str, status: int) -> None:
        await until_status(lambda: self.ask(access_token), status)


@pytest.fixture
async def caller(gateway: str) -> AsyncIterator[Caller]:
    async with httpx2.AsyncClient() as http:
        yield Caller(http, gateway)


@pytest.mark.long
async def test_go_gateway_caches_until_redis_revokes(deployment: Deployment, caller: Caller) -> None:
    async with worker_on(deployment) as worker:
        [(token, _)] = await start_sessions(worker, USERNAME, 1)
        # The second use caches the token.
        await caller.until(token, 200)
        assert (await caller.ask(token)).headers["X-Auth-Subject"] == identify_user("main", USERNAME).digest
        before = deployment.count_calls("get")
        assert [(await caller.ask(token)).status_code for _ in range(20)] == [200] * 20
        assert deployment.count_calls("get") == before

        parsed = parse_access_token(token)
        assert parsed is not None
        await worker.access_tokens.revoke(parsed, client_id="phone-app")
        await caller.until(token, 401)
        assert [(await caller.ask(each)).status_code for each in ("none", VECTORS["live"][0]["token"])] == [401, 401]


@pytest.mark.long
async def test_go_gateway_computes_the_end_of_a_token(deployment: Deployment, caller: Caller) -> None:
    """Redis deletes expired keys late. Here it deletes them only when they are read."""
    async with worker_on(deployment) as worker:
        [(token, _)] = await start_sessions(worker, USERNAME, 1)
    await caller.until(token, 200)
    key = access_key_of(token)
    lines = str(deployment.store.get(key)).split("\n")
    lines[2] = str(read_server_ms(deployment.store) + 3_000)
    deployment.store.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", 0)  # type: ignore[no-untyped-call]
    deployment.store.set(key, "\n".join(lines), px=3_000)
    await caller.until(token, 401)


@pytest.mark.long
async def test_go_gateway_refuses_nothing_in_an_outage(deployment: Deployment, caller: Caller) -> None:
    """It caches nothing while Redis is away, and a record that it cannot read is an outage."""
    async with worker_on(deployment) as worker:
        (token, _), (other, _) = await start_sessions(worker, USERNAME, 2)
    for _ in range(3):
        await caller.until(token, 200)
    record = str(deployment.store.get(access_key_of(other)))
    deployment.store.set(access_key_of(other), record.replace("2", "3", 1), px=600_000)
    assert (await caller.ask(other)).status_code == 503

    with deployment.killed():
        await caller.until(token, 503)
        assert (await caller.ask(token)).status_code == 503
    await caller.until(token, 200)
    deployment.store.delete(access_key_of(token))
    await caller.until(token, 401)
    with deployment.frozen():
        await caller.until(other, 503)
