"""The guide to the gateway in Python: what it shows runs, and does what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conftest import AnyRedis, http_client_for
from tests.support.clients_and_users import ALICE, PHONE_APP, bearer, tokens_of
from tests.support.servers import CHECKOUT

GUIDE = (CHECKOUT / "docs" / "how-to" / "protect-a-python-api.md").read_text()
*EXAMPLES, TEST = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
FASTAPI = EXAMPLES[3]


def run_example(number: int, redis_server: AnyRedis, library: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the variables of an example, which ran in this process with the library from its wheel."""
    monkeypatch.setenv("REDIS_URL", redis_server.url)
    monkeypatch.syspath_prepend(library)
    example: dict[str, Any] = {}
    exec(EXAMPLES[number], example)
    return example


def test_every_example_runs_unchanged(redis_server: AnyRedis, gateway_library: Path) -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", example],
            cwd=gateway_library,
            env={"REDIS_URL": redis_server.url},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for example in EXAMPLES
    ]

    assert outputs == ["no live access token\n", "", "", "", ""]


@pytest.mark.parametrize(
    ("number", "anonymous", "enduser"),
    [
        (1, {"/me": 401}, {"/me": 200}),
        (
            2,
            {"/": 200, "/me": 401, "/prices": 401, "/reports/daily": 401},
            {"/": 200, "/me": 200, "/prices": 403, "/reports/daily": 403},
        ),
        (
            3,
            {"/": 200, "/me": 401, "/prices": 401, "/rebates": 401, "/prices/stream": 401},
            {"/": 200, "/me": 200, "/prices": 403, "/rebates": 403, "/prices/stream": 403},
        ),
        (
            4,
            {"/.well-known/oauth-protected-resource": 200, "/me": 401},
            {"/.well-known/oauth-protected-resource": 200, "/me": 200},
        ),
    ],
)
async def test_the_applications_of_the_guide_are_guarded(
    number: int,
    anonymous: dict[str, int],
    enduser: dict[str, int],
    http: httpx2.AsyncClient,
    redis_server: AnyRedis,
    gateway_library: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    headers = bearer(tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"])
    example = run_example(number, redis_server, gateway_library, monkeypatch)

    async with http_client_for(example["app"]) as client:
        assert {path: (await client.get(path)).status_code for path in anonymous} == anonymous
        assert {path: (await client.get(path, headers=headers)).status_code for path in enduser} == enduser
        if "/prices" in enduser:
            assert_shown(await client.get("/prices", headers=headers))
    await example["lookup"].close()


def test_the_test_of_the_guide_passes_without_redis(gateway_library: Path, tmp_path: Path) -> None:
    outage = """
def test_an_outage_is_503(fake_lookup: FakeLookup) -> None:
    fake_lookup.is_available = False
    assert TestClient(app).get("/me", headers={"Authorization": "Bearer a"}).status_code == 503
"""
    (tmp_path / "api.py").write_text(FASTAPI)
    (tmp_path / "test_api.py").write_text(TEST + outage)

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis"],
        cwd=tmp_path,
        env=os.environ | {"REDIS_URL": "redis://unused", "PYTHONPATH": str(gateway_library)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr


def assert_shown(refusal: httpx2.Response) -> None:
    """Raise AssertionError unless the guide shows exactly this refusal."""
    sent = [f"{name}: {value}" for name, value in refusal.headers.items() if name != "content-length"]
    shown = re.findall(r"^```\nHTTP/1.1 403 Forbidden\n(.*?)\n\n(.*?)\n```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert shown == [("\n".join(sent), refusal.text)]
