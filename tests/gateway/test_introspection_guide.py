"""The API with Express in docs/how-to/protect-an-api.md runs as written, except for its port."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import redis

from deployment.stack import running
from tests.conftest import environment_of
from tests.support.clients_and_users import ALICE, PHONE_APP, bearer, tokens_of
from tests.support.javascript import PACKAGES, check_javascript
from tests.support.servers import CHECKOUT, RedisServer, ServiceProcess, free_port, running_service, stop
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

GUIDE = (CHECKOUT / "docs" / "how-to" / "protect-an-api.md").read_text()
(BLOCK,) = re.findall(r"^```js\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def service(redis_server: RedisServer, store: redis.Redis, tmp_path: Path) -> Iterator[ServiceProcess]:
    environment = environment_of(redis_server, TOKEN_SERVICE_SEED_FILE=str(CHECKOUT / "examples" / "seed.yaml"))
    with running_service(tmp_path, environment) as service:
        yield service


@pytest.fixture
def api(service: ServiceProcess, tmp_path: Path) -> Iterator[httpx2.Client]:
    check_javascript()
    port = free_port()
    program = tmp_path / "api.mjs"
    program.write_text(BLOCK.replace("9100", str(port)))
    (tmp_path / "node_modules").symlink_to(PACKAGES)
    command = [str(Path(sys.executable).with_name("node")), str(program)]
    environment = {
        "INTROSPECTION_URL": f"{service.url}/oauth2/v1/introspect",
        "INTROSPECTION_CLIENT": "gateway:gateway-secret",
    }
    with (
        running("the API", command, os.environ | environment, signal.SIGTERM, MAX_WAIT_SECONDS),
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=MAX_WAIT_SECONDS) as client,
    ):

        def is_up() -> bool:
            try:
                return client.get("/").status_code == 404
            except httpx2.TransportError:
                return False

        wait_until(is_up, "the API")
        yield client


async def test_express_api_of_the_guide_requires_a_valid_token(service: ServiceProcess, api: httpx2.Client) -> None:
    async with httpx2.AsyncClient(base_url=service.url, timeout=MAX_WAIT_SECONDS) as http:
        headers = bearer(tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"])
        answer = await PHONE_APP.log_in(http, ALICE, "realm:main role:organisation")
        other_role = bearer(tokens_of(answer)["access_token"])
        subject = (await http.get("/oauth2/v1/verify", headers=headers)).headers["x-auth-subject"]

    assert api.get("/me").status_code == 401
    refused = api.get("/me", headers=bearer("unknown"))
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
    narrow = api.get("/me", headers=other_role)
    assert (narrow.status_code, narrow.headers["www-authenticate"]) == (403, 'Bearer error="insufficient_scope"')
    assert api.get("/me", headers=headers).json() == {"subject": subject}

    stop(service.process)
    assert api.get("/me", headers=headers).status_code == 503
