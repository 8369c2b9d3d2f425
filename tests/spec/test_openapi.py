"""docs/openapi.yaml matches the service: schemathesis tries it, and it describes every route.

tests/conftest.py checks that it also describes each response in the other tests.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31

from service.protocol import errors
from service.routes import make_routes
from service.worker import Worker
from tests.conftest import environment_of
from tests.support.clients_and_users import ALICE, BOB, GATEWAY, TOKEN, USERS, WEB_SHOP, UserCredentials, login_form
from tests.support.openapi import CONTRACT, FILE, METHODS, is_of_schema, resolve
from tests.support.servers import CHECKOUT, RedisServer, ServiceProcess, running_service

pytestmark = pytest.mark.clause("decided-openapi-exact")

PLENTY = "1000000/minute"
PAGES = {
    "/",
    "/favicon.ico",
    "/.well-known/change-password",
    "/authorization",
    "/authorization/",
    "/authorization/login",
    "/authorization/callback",
    "/authorization/consent",
    "/authorization/switch",
    "/authorization/assets/page.css",
    "/authorization/assets/page.js",
    "/authorization/assets/logo",
    "/sessions",
    "/sessions/",
    "/sessions/end",
    "/sessions/end-browser",
    "/sessions/password",
    "/sessions/end-all",
    "/sessions/sign-out",
}
"""Pages for browsers, which the file describes in prose only."""

ERRORS_OF_PAGES = {"access_denied", "unsupported_response_type"}
"""Error codes that are only sent by redirect."""

EVERYWHERE = {("invalid_request", 404), ("invalid_request", 501)}
"""Responses that belong to no operation of the file."""


@pytest.fixture
def service(own_redis: RedisServer, tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service without throttling."""
    limits = ("LOGIN_ATTEMPTS", "LOGIN_ATTEMPTS_PER_USER", "LOGIN_ATTEMPTS_PER_ADDRESS", "CLIENT_ATTEMPTS")
    variables = {f"TOKEN_SERVICE_{name}": PLENTY for name in limits}
    with running_service(tmp_path, environment_of(own_redis, **variables)) as service:
        yield service


@pytest.mark.long
def test_schemathesis_finds_nothing(service: ServiceProcess, tmp_path: Path) -> None:
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(configure(service))
    command = [str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(configuration), "run", str(FILE)]
    options = ["--url", service.url, "--phases", "examples,coverage,fuzzing", "--no-color", "--continue-on-failure"]
    report = tmp_path / "report.har"
    options += ["--report", "har", "--report-har-path", str(report), "--output-sanitize", "false"]

    done = subprocess.run(
        [*command, *options],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert reached_by(report) >= {
        "token 200",
        "token 400 invalid_request",
        "token 400 invalid_grant",
        "token 401 invalid_client",
        "revoke 200",
        "introspect 200 active",
        "introspect 200 inactive",
        "global-token-revocation 204",
        "global-token-revocation 400 invalid_request",
        "users 201",
        "users 204",
        "users 400 invalid_request",
        "users 403 unauthorized_client",
        "userinfo 200",
        "userinfo 401 invalid_token",
        "revokeAll 200",
        "revokeAll 401 invalid_token",
        "verify 200",
        "verify 401",
        "verify 403 insufficient_scope",
    }


def configure(service: ServiceProcess) -> str:
    """Send valid credentials in most requests, so that the checks behind authentication are tested too.

    Data that fits the schema need not exist: OAuth answers 400 to an unknown code or a wrong password. Data that
    schemathesis calls positive may therefore be refused.
    """
    alice, bob, other = (log_in(service, person) for person in (ALICE, BOB, ALICE))
    return f"""
        hooks = "tests.spec.openapi_hooks"
        warnings = false
        [generation]
        deterministic = true
        max-examples = 10
        database = "none"
        [checks]
        positive_data_acceptance.enabled = false
        missing_required_header.expected-statuses = [405]
        [auth.openapi.accessToken]
        bearer = "{alice["access_token"]}"
        [dictionaries.client]
        values = ["{WEB_SHOP.client_id}"]
        [dictionaries.client_secret]
        values = ["{WEB_SHOP.client_secret}"]
        [dictionaries.gateway]
        values = ["{GATEWAY.client_id}"]
        [dictionaries.gateway_secret]
        values = ["{GATEWAY.client_secret}"]
        [dictionaries.username]
        values = ["{ALICE.username}"]
        [dictionaries.password]
        values = ["{ALICE.password}"]
        [dictionaries.living]
        values = ["{alice["access_token"]}", "{alice["refresh_token"]}"]
        [dictionaries.dying]
        values = ["{other["access_token"]}", "{other["refresh_token"]}"]
        [[operations]]
        include-path = "/oauth2/v1/verify"
        phases.coverage.unexpected-methods = []
        [[operations]]
        include-operation-id = "token"
        [operations.parameters]
        "body.client_id" = {{ dictionary = "client", probability = 0.9 }}
        "body.client_secret" = {{ dictionary = "client_secret", probability = 0.9 }}
        "body.username" = {{ dictionary = "username", probability = 0.8 }}
        "body.password" = {{ dictionary = "password", probability = 0.8 }}
        "body.refresh_token" = {{ dictionary = "living", probability = 0.8 }}
        [[operations]]
        include-operation-id = "revoke"
        [operations.parameters]
        "body.client_id" = {{ dictionary = "client", probability = 0.9 }}
        "body.client_secret" = {{ dictionary = "client_secret", probability = 0.9 }}
        "body.token" = {{ dictionary = "dying", probability = 0.8 }}
        [[operations]]
        include-operation-id = "introspect"
        [operations.parameters]
        "body.client_id" = {{ dictionary = "gateway", probability = 0.9 }}
        "body.client_secret" = {{ dictionary = "gateway_secret", probability = 0.9 }}
        "body.token" = {{ dictionary = "living", probability = 0.8 }}
        [[operations]]
        include-operation-id = ["globalTokenRevocation", "putUser", "deleteUser"]
        checks.ignored_auth.enabled = false
        checks.missing_required_header.enabled = false
        [[operations]]
        include-operation-id = "revokeAll"
        headers = {{ Authorization = "Bearer {bob["access_token"]}" }}
    """


def log_in(service: ServiceProcess, credentials: UserCredentials) -> dict[str, str]:
    response = httpx2.post(service.url + TOKEN, data=WEB_SHOP.credentials | login_form(credentials))
    tokens: dict[str, str] = response.raise_for_status().json()
    return tokens


def reached_by(report: Path) -> set[str]:
    """Return what schemathesis reached: endpoint, status, and the error or kind of the body."""
    entries = json.loads(report.read_text())["log"]["entries"]
    return {describe(urlsplit(entry["request"]["url"]).path, entry["response"]) for entry in entries}


def describe(path: str, response: Mapping[str, Any]) -> str:
    content = response["content"]
    body = json.loads(content["text"]) if content.get("text") and content["mimeType"] == "application/json" else {}
    word = body.get("error") or {True: "active", False: "inactive", None: ""}[body.get("active")]
    endpoint = "users" if path.startswith(USERS) else path.rpartition("/")[2]
    return f"{endpoint} {response['status']} {word}".rstrip()


def test_openapi_file_is_valid_with_matching_examples() -> None:
    assert list(jsonschema_rs.validator_for(OPENAPI_31).iter_errors(CONTRACT)) == []
    for operation in operations():
        parts = [operation.get("requestBody", {}), *operation["responses"].values()]
        for content in (content for part in parts for content in resolve(part).get("content", {}).values()):
            for example in content.get("examples", {}).values():
                assert is_of_schema(example["value"], content["schema"]), example


async def test_every_route_is_in_the_file_or_a_page(worker: Worker) -> None:
    served = {route.path_format: route.methods for route in make_routes(worker)}

    described = {path: methods.keys() & METHODS for path, methods in CONTRACT["paths"].items()}
    assert served.keys() == described.keys() | PAGES
    for path, methods in described.items():
        taken = served[path]
        # None means that the handler checks the method itself. HEAD comes with GET, and a preflight is answered before
        # routing.
        if taken is not None:
            assert methods - {"options"} == {method.lower() for method in taken} - {"head"}, path


async def test_the_description_is_served_with_the_base_url(http: httpx2.AsyncClient, worker: Worker) -> None:
    served = (await http.get("/openapi.json")).json()

    assert served == {**CONTRACT, "servers": [{"url": worker.settings.base_url}]}


def test_every_error_is_in_the_file() -> None:
    classes = {name: each for name, each in vars(errors).items() if hasattr(each, "error")}
    raised = {(each.error, each.status) for each in classes.values()}
    for file in (CHECKOUT / "service").rglob("*.py"):
        exact = re.findall(r"(\w+)\([^()]+, status=(\d+)\)", file.read_text())
        raised |= {(classes[name].error, int(status)) for name, status in exact if name in classes}

    in_the_file = {pair for operation in operations() for pair in errors_of(operation)}
    assert in_the_file <= raised
    assert {pair for pair in raised - in_the_file if pair[0] not in ERRORS_OF_PAGES} <= EVERYWHERE


def operations() -> Iterator[Mapping[str, Any]]:
    for methods in CONTRACT["paths"].values():
        yield from (methods[method] for method in methods.keys() & METHODS)


def errors_of(operation: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for status, response in operation["responses"].items():
        for content in resolve(response).get("content", {}).values():
            error = resolve(content.get("schema", {})).get("properties", {}).get("error", {})
            codes = error.get("enum", [error["const"]] if "const" in error else [])
            yield from ((code, int(status)) for code in codes)
