"""The shipped deployment, started by scripts/stack: Redis, two workers, and nginx with TLS."""

import json
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path

import httpx2
import pytest

from tests.deployment.stack_under_test import RunningStack, running_stack
from tests.support.clients_and_users import ALICE, PHONE_APP, TOKEN, login_form
from tests.support.left_out import get_program
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

LOGIN = PHONE_APP.credentials | login_form(ALICE, "realm:main role:enduser")
AUTHORIZATION = {
    "response_type": "code",
    "client_id": "web-shop",
    "redirect_uri": "http://127.0.0.1:9000/callback",
    "state": "a-state-that-is-in-no-log",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    with running_stack(tmp_path_factory.mktemp("stack")) as stack:
        yield stack
    assert stack.process.returncode == 0


@pytest.fixture(scope="module")
def https(stack: RunningStack) -> Iterator[httpx2.Client]:
    with stack.client() as client:
        yield client


def test_the_printed_curl_line_works_over_tls(stack: RunningStack) -> None:
    words = shlex.split(stack.curl_line)
    assert "--cacert" in words
    answer = subprocess.run([get_program(words[0]), *words[1:]], capture_output=True, check=True)
    assert json.loads(answer.stdout)["token_type"] == "Bearer"


def test_browser_login_sets_host_bound_cookies(stack: RunningStack) -> None:
    with stack.client() as browser:
        page = browser.get("/authorization/", params=AUTHORIZATION, follow_redirects=True)
        assert page.status_code == 200
        assert page.headers.get_list("Strict-Transport-Security") == ["max-age=63072000"]
        hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page.text))
        form = hidden | {"username": ALICE.username, "password": ALICE.password}
        (action,) = re.findall(r'<form method="post" action="([^"]+)" novalidate>', page.text)
        response = browser.post(action, data=form)
        assert response.status_code == 303
        assert 'value="allow"' in browser.get(response.headers["Location"]).text

    set_cookies = [header for given in (page, response) for header in given.headers.get_list("Set-Cookie")]
    cookies = [morsel for header in set_cookies for morsel in SimpleCookie(header).values()]
    assert len(cookies) >= 2
    assert all(cookie.key.startswith("__Host-") for cookie in cookies)
    assert all(cookie["secure"] and cookie["httponly"] for cookie in cookies)


@pytest.mark.clause("decided-shipped-proxy")
@pytest.mark.parametrize("path", ["/metrics", "/healthz", "//readyz", "/%72eadyz", "/authorization/%2e%2e/readyz"])
def test_operator_paths_are_not_public(stack: RunningStack, path: str) -> None:
    """The path is sent as raw bytes, since a client library would normalize it."""
    with (
        socket.create_connection(("127.0.0.1", stack.https_port), MAX_WAIT_SECONDS) as plain,
        stack.trust().wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 404 ")


@pytest.mark.clause("decided-shipped-proxy")
def test_plain_http_redirects_pages_and_refuses_secrets(stack: RunningStack) -> None:
    with httpx2.Client(base_url=f"http://localhost:{stack.http_port}") as plain:
        response = plain.get("/authorization/", params=AUTHORIZATION)
        assert response.status_code == 301
        assert response.headers["Location"] == f"{stack.url}/authorization/?{httpx2.QueryParams(AUTHORIZATION)}"
        refused = plain.post(TOKEN, data=LOGIN)
        assert (refused.status_code, "Location" in refused.headers) == (403, False)


def test_no_log_holds_a_query_string_a_password_or_a_token(stack: RunningStack, https: httpx2.Client) -> None:
    token = https.post(TOKEN, data=LOGIN).json()["access_token"]
    https.get("/authorization/", params=AUTHORIZATION, headers={"Referer": f"{stack.url}/?state={token}"})
    wait_until(lambda: '"path":"/authorization/"' in stack.written("access.log"), "the log line of the request")
    logs = stack.log + stack.written("access.log") + stack.written("error.log")
    for secret in (AUTHORIZATION["state"], token, ALICE.password, stack.written("secret_key")):
        assert secret not in logs


def test_only_the_owner_can_enter_the_folder(stack: RunningStack) -> None:
    folder = stack.folder / "stack"
    assert folder.stat().st_mode & 0o777 == 0o700
    for name in ("redis_password", "secret_key", "tls/key.pem"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.clause("decided-clean-stop")
def test_sigterm_finishes_requests_and_then_ends_the_stack(tmp_path: Path) -> None:
    body = str(httpx2.QueryParams(LOGIN)).encode()
    head = f"POST {TOKEN} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    head += "Content-Type: application/x-www-form-urlencoded\r\n\r\n"
    with running_stack(tmp_path) as stack:
        with (
            socket.create_connection(("127.0.0.1", stack.https_port), MAX_WAIT_SECONDS) as plain,
            stack.trust().wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            connection.sendall(head.encode() + body[:20])
            stack.process.send_signal(signal.SIGTERM)
            wait_until(lambda: not stack.listens(stack.https_port), "nginx to stop listening")
            assert stack.process.poll() is None
            connection.sendall(body[20:])
            assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert stack.process.wait(MAX_WAIT_SECONDS) == 0
        for port in (stack.https_port, stack.http_port, stack.service_port, stack.redis_port):
            assert not stack.listens(port)
