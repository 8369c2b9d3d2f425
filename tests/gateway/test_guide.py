"""The guide to the gateway in Python: what it shows runs, and does what it says."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.conftest import AnyRedis, http_client_for, running_lifespan
from tests.support.clients_and_users import ALICE, PHONE_APP, bearer, tokens_of
from tests.support.servers import CHECKOUT

GUIDE = (CHECKOUT / "docs" / "how-to" / "protect-a-python-api.md").read_text()
LOOKUP, *EXCERPTS, TEST = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
EXAMPLES = [CHECKOUT / "examples" / name for name in ("api.py", "fastapi_api.py")]
METADATA = "/.well-known/oauth-protected-resource"


def test_shown_lookup_runs_unchanged(redis_server: AnyRedis, gateway_library: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOOKUP],
        cwd=gateway_library,
        env={"REDIS_URL": redis_server.url},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "no valid access token\n"


@pytest.mark.parametrize(("excerpt", "example"), [*zip(EXCERPTS, EXAMPLES, strict=True)], ids=["api", "fastapi_api"])
def test_shown_lines_are_in_the_example_in_this_order(excerpt: str, example: Path) -> None:
    lines = iter(example.read_text().splitlines())

    assert [line for line in excerpt.splitlines() if line not in lines] == []


@pytest.mark.parametrize(
    ("example", "anonymous", "enduser"),
    [
        (
            EXAMPLES[0],
            {"/": 200, METADATA: 200, "/me": 401, "/partners": 401},
            {"/": 200, METADATA: 200, "/me": 200, "/partners": 403},
        ),
        (
            EXAMPLES[1],
            {"/": 200, "/me": 401, "/prices": 401, "/rebates": 401, "/prices/stream": 401},
            {"/": 200, "/me": 200, "/prices": 403, "/rebates": 403, "/prices/stream": 403},
        ),
    ],
    ids=["api", "fastapi_api"],
)
async def test_examples_of_the_guide_are_guarded(
    example: Path,
    anonymous: dict[str, int],
    enduser: dict[str, int],
    http: httpx2.AsyncClient,
    redis_server: AnyRedis,
    gateway_library: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    headers = bearer(tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"])
    monkeypatch.setenv("REDIS_URL", redis_server.url)
    monkeypatch.syspath_prepend(gateway_library)
    program = runpy.run_path(str(example))
    app = program["app"] if "app" in program else program["make_api"]()

    async with running_lifespan(app), http_client_for(app) as client:
        assert {path: (await client.get(path)).status_code for path in anonymous} == anonymous
        assert {path: (await client.get(path, headers=headers)).status_code for path in enduser} == enduser


def test_the_test_of_the_guide_passes_without_redis(gateway_library: Path, tmp_path: Path) -> None:
    outage = """
def test_an_outage_is_503(fake_lookup: FakeLookup) -> None:
    fake_lookup.is_available = False
    assert TestClient(app).get("/me", headers={"Authorization": "Bearer a"}).status_code == 503
"""
    (tmp_path / "fastapi_api.py").write_text(EXAMPLES[1].read_text())
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
