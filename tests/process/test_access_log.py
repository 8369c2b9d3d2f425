"""The access log of a whole process: each request with its address and the reason of a refusal, and never a secret."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

from service.protocol.user import identify_user
from service.store.keys import login_key
from tests.conftest import environment_of
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    GATEWAY,
    INTROSPECT,
    PHONE_APP,
    REVOKE,
    REVOKE_ALL,
    TOKEN,
    VERIFY,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
    basic,
    bearer,
    login_form,
    tokens_of,
)
from tests.support.servers import RedisServer, ServiceProcess, running_service
from tests.support.user_paths import NAME, USER_PATHS
from tests.support.waiting import wait_until

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
WRONG_ALICE = UserCredentials(ALICE.username, "tell-nobody")


@pytest.fixture
def service(redis_server: RedisServer, store: redis.Redis, registry: None, tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path, environment_of(redis_server, LOG_LEVEL="info")) as service:
        yield service


def read_requests(log: Path) -> list[dict[str, Any]]:
    """Return the log lines of POST requests. An incomplete last line is left out."""
    whole, _, _ = log.read_text().rpartition("\n")
    events = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
    return [event for event in events if event.get("method") == "POST"]


def wait_for_requests(log: Path, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(read_requests(log)) >= count, f"{count} lines about requests")
    return read_requests(log)


@pytest.mark.clause("6749-2.3.1-no-credentials-in-uri", "decided-server-error", "decided-one-line-a-request")
async def test_request_is_logged_in_one_line_without_secrets(service: ServiceProcess, store: redis.Redis) -> None:
    secret = "tell-nobody"
    async with httpx2.AsyncClient(base_url=service.url) as http:
        tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
        await http.post(f"{TOKEN}?client_secret={secret}", data=PHONE_APP.credentials)
        await http.post(TOKEN, content=secret.encode(), headers={"Content-Type": "text/plain"})
        await http.post(TOKEN, content=f"x={secret}%".encode(), headers=FORM)
        await OAuthClient("web-shop", secret).log_in(http, ALICE)
        await http.post(TOKEN, data=login_form(ALICE), headers=basic("nobody", secret))
        await WEB_SHOP.log_in(http, WRONG_ALICE)
        await PHONE_APP.refresh(http, secret)
        await PHONE_APP.exchange(http, secret, "http://127.0.0.1:9000/callback")
        await http.post(REVOKE_ALL, headers=bearer(secret))
        tokens = tokens_of(await PHONE_APP.refresh(http, tokens["refresh_token"]))
        await PHONE_APP.revoke(http, tokens["access_token"])
        # The last request, since the server closes the connection after it.
        store.set(login_key(identify_user(ALICE.realm, ALICE.username)), "not a number")
        await PHONE_APP.log_in(http, ALICE)

    requests = wait_for_requests(service.log, 13)

    assert [(request["event"], request["status"], request.get("reason")) for request in requests] == [
        ("tokens_issued", 200, None),
        ("request", 400, "parameter_in_query"),
        ("request", 400, "content_type_differs"),
        ("request", 400, "form_malformed"),
        ("client_authentication_failed", 401, "client_secret_wrong"),
        ("client_authentication_failed", 401, "client_unknown"),
        ("login_failed", 400, "password_wrong"),
        ("request", 400, "refresh_token_malformed"),
        ("request", 400, "code_unknown"),
        ("request", 401, "access_token_unknown"),
        ("tokens_refreshed", 200, None),
        ("access_token_revoked", 200, None),
        ("request", 500, "unforeseen"),
    ]
    assert {request["path"] for request in requests} == {TOKEN, REVOKE, REVOKE_ALL}
    assert {"ms", "address", "client_id", "username", "realm", "session", "scope"} <= set(requests[10])
    events = [json.loads(line) for line in service.log.read_text().splitlines() if '"service.audit"' in line]
    assert [event["event"] for event in events if "method" not in event and "seed" not in str(event)] == [
        "login_succeeded"
    ]
    log = service.log.read_text()
    passwords = (ALICE.password, ALICE.password.replace(" ", "+"), "web-shop-secret")
    for text in (secret, *passwords, tokens["access_token"], tokens["refresh_token"]):
        assert text not in log


@pytest.mark.clause("decided-lookups-in-the-log")
async def test_only_refused_lookups_are_logged(service: ServiceProcess) -> None:
    async with httpx2.AsyncClient(base_url=service.url) as http:
        access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
        await http.post(VERIFY, headers=bearer(access_token))
        await http.post(VERIFY)
        await http.post(VERIFY, headers=bearer("tell-nobody"))
        await http.post(f"{VERIFY}?scope=tell:nobody", headers=bearer(access_token))
        await http.post(f"/elsewhere{VERIFY}", headers=bearer(access_token))
        await GATEWAY.introspect(http, access_token)
        await GATEWAY.introspect(http, "tell-nobody")
        await WEB_SHOP.introspect(http, access_token)

    requests = wait_for_requests(service.log, 6)

    assert [(request["path"], request["status"], request.get("reason")) for request in requests] == [
        (TOKEN, 200, None),
        (VERIFY, 401, "bearer_missing"),
        (VERIFY, 401, "access_token_unknown"),
        (VERIFY, 403, "needed_scope_missing"),
        (f"/elsewhere{VERIFY}", 404, "unknown_path"),
        (INTROSPECT, 403, "introspection_not_registered"),
    ]
    assert "tell" not in service.log.read_text()


async def test_no_user_name_is_logged(service: ServiceProcess) -> None:
    elsewhere = f"{REVOKE}/users-of/a"
    async with httpx2.AsyncClient(base_url=service.url) as http:
        for path in (*USER_PATHS, elsewhere):
            await http.post(f"{path}?x={NAME}")

    paths = [request["path"] for request in wait_for_requests(service.log, len(USER_PATHS) + 1)]

    assert (paths[0], paths[-1]) == ("/oauth2/v1/users/{username}", elsewhere)
    assert NAME not in service.log.read_text()


@pytest.mark.clause("decided-trace-id")
async def test_a_pipelined_request_has_only_its_own_trace(service: ServiceProcess) -> None:
    """The server starts the second request within the first, and so in a copy of its context."""
    trace_ids = ["a" * 32, None, "b" * 32, None]
    heads = [f"traceparent: 00-{trace_id}-{'c' * 16}-01\r\n" if trace_id else "" for trace_id in trace_ids]
    heads[-1] += "Connection: close\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    for head in heads:
        writer.write(f"POST {TOKEN} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n{head}\r\n".encode())
    await reader.read()
    writer.close()

    lines = wait_for_requests(service.log, len(heads))
    assert [line.get("trace_id") for line in lines] == trace_ids


# Requests with very long texts


# A unix socket


@asynccontextmanager
async def on_a_unix_socket(
    folder: Path, redis_server: RedisServer, **variables: str
) -> AsyncIterator[tuple[httpx2.AsyncClient, Path]]:
    """A service at its own unix socket, and its log."""
    path = folder / "service.sock"
    environment = environment_of(redis_server, LOG_LEVEL="info", **variables)
    with running_service(folder, environment, "--uds", str(path), wait_for=None) as service:
        wait_until(lambda: "Application startup complete" in service.log.read_text(), "the service")
        wait_until(path.exists, "the socket")
        transport = httpx2.AsyncHTTPTransport(uds=str(path))
        async with httpx2.AsyncClient(transport=transport, base_url="http://service") as http:
            yield http, service.log


@pytest.mark.clause("decided-metrics", "decided-login-limit-per-address", "decided-no-trusted-proxies-by-default")
async def test_unix_socket_peer_is_local(
    redis_server: RedisServer, store: redis.Redis, registry: None, tmp_path: Path
) -> None:
    limit = {"TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS": "2/minute"}
    async with on_a_unix_socket(tmp_path, redis_server, **limit) as (http, log):
        forwarded = {"X-Forwarded-For": "198.51.100.1"}
        form = PHONE_APP.credentials | login_form(WRONG_ALICE)
        assert (await http.post(TOKEN, data=form)).status_code == 400
        assert (await http.post(TOKEN, data=form, headers=forwarded)).status_code == 400
        assert [store.get(key) for key in store.scan_iter("address:*:login:*")] == ["2"]
        assert (await PHONE_APP.log_in(http, BOB)).status_code == 429
        assert (await http.get("/metrics")).status_code == 200

        assert {request["address"] for request in wait_for_requests(log, 3)} == {"127.0.0.1"}
        assert "/metrics" not in log.read_text()


@pytest.mark.clause("decided-trusted-proxies", "decided-unix-socket-peer")
async def test_a_proxy_at_a_unix_socket_can_be_trusted(
    redis_server: RedisServer, store: redis.Redis, registry: None, tmp_path: Path
) -> None:
    variables = {"TOKEN_SERVICE_TRUSTED_PROXIES": "127.0.0.1", "TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS": "1/minute"}
    form = PHONE_APP.credentials | login_form(WRONG_ALICE)
    async with on_a_unix_socket(tmp_path, redis_server, **variables) as (http, log):
        addresses = ["198.51.100.1", "198.51.100.2", "198.51.100.1"]
        responses = [await http.post(TOKEN, data=form, headers={"X-Forwarded-For": hop}) for hop in addresses]

        assert [response.status_code for response in responses] == [400, 400, 429]
        assert (await http.get("/metrics", headers={"X-Forwarded-For": addresses[0]})).status_code == 404
        assert [request["address"] for request in wait_for_requests(log, 3)] == addresses
