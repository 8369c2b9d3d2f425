"""The example API looks up the tokens of the service."""

import runpy
from pathlib import Path

import httpx2
import pytest

from tests.conftest import AnyRedis, http_client_for, running_lifespan
from tests.gateway.conftest import log_in
from tests.support.clients_and_users import ALICE, assert_error, bearer
from tests.support.servers import CHECKOUT


async def test_the_example_api_takes_the_tokens_of_the_service(
    http: httpx2.AsyncClient, redis_server: AnyRedis, gateway_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", redis_server.url)
    monkeypatch.syspath_prepend(gateway_library)
    api = runpy.run_path(str(CHECKOUT / "examples" / "api.py"))["make_api"]()
    headers = bearer(await log_in(http))

    async with running_lifespan(api), http_client_for(api) as client:
        assert (await client.get("/")).json() == {"hello": "everybody"}
        assert (await client.get("/me", headers=headers)).json()["username"] == ALICE.username
        assert_error(await client.get("/partners", headers=headers), 403, "insufficient_scope")
        assert_error(await client.get("/me", headers=bearer("x")), 401, "invalid_token")
