"""The examples of user management and of a migration at the login run unchanged but for the service's URL."""

import json
import runpy
from pathlib import Path
from urllib.error import HTTPError

import httpx2
import pytest
import redis

from tests.conftest import environment_of
from tests.support.clients_and_users import GATEWAY, PHONE_APP, UserCredentials, tokens_of
from tests.support.servers import CHECKOUT, RedisServer, running_service
from tests.support.waiting import MAX_WAIT_SECONDS

ERIN = UserCredentials("erin+1/2@example.com", "a password of Erin's")
NEW = UserCredentials(ERIN.username, "another password of Erin's")
RENAMED = UserCredentials("erin/3@example.org", NEW.password)


def write_program(file: Path, service_url: str, *examples: str) -> None:
    """Write the examples as one program that calls this service."""
    text = "".join((CHECKOUT / "examples" / name).read_text() for name in examples)
    file.write_text(
        text.replace("http://127.0.0.1:8000", service_url).replace("from examples.back_end import send\n", "")
    )


@pytest.mark.clause("decided-managed-users", "decided-managed-users-changes")
async def test_example_signs_up_resets_renames_and_deletes(
    redis_server: RedisServer, store: redis.Redis, tmp_path: Path
) -> None:
    environment = environment_of(redis_server, TOKEN_SERVICE_SEED_FILE=str(CHECKOUT / "examples" / "seed.yaml"))
    program = tmp_path / "block.py"
    with running_service(tmp_path, environment) as service:
        write_program(program, service.url, "back_end.py")
        back_end = runpy.run_path(str(program))
        async with httpx2.AsyncClient(base_url=service.url, timeout=MAX_WAIT_SECONDS) as http:
            with pytest.raises(HTTPError) as refusal:
                back_end["sign_up"](ERIN.username, "password123", "Erin")
            assert "most common passwords" in json.load(refusal.value)["error_description"]

            user_id = back_end["sign_up"](ERIN.username, ERIN.password, "Erin")
            with pytest.raises(HTTPError, match="412"):
                back_end["sign_up"](ERIN.username, "a stranger's password", "Mallory")
            tokens = tokens_of(await PHONE_APP.log_in(http, ERIN))
            assert (await GATEWAY.introspect(http, tokens["access_token"])).json()["username"] == ERIN.username

            back_end["reset_password"](ERIN.username, NEW.password)
            assert not (await GATEWAY.introspect(http, tokens["access_token"])).json()["active"]
            assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 400
            assert (await PHONE_APP.log_in(http, ERIN)).status_code == 400

            back_end["rename"](ERIN.username, RENAMED.username)
            with pytest.raises(HTTPError, match="404"):
                back_end["rename"](ERIN.username, RENAMED.username)
            assert (await PHONE_APP.log_in(http, NEW)).status_code == 400
            tokens = tokens_of(await PHONE_APP.log_in(http, RENAMED))
            assert (await GATEWAY.introspect(http, tokens["access_token"])).json()["sub"] == user_id

            back_end["close_account"](RENAMED.username)
            with pytest.raises(HTTPError, match="412"):
                back_end["reset_password"](RENAMED.username, NEW.password)
            assert not (await GATEWAY.introspect(http, tokens["access_token"])).json()["active"]
            assert (await PHONE_APP.log_in(http, RENAMED)).status_code == 400
            odd = await http.put("/oauth2/v1/users/zo%EB", json={}, auth=("back-office", "back-office-secret"))
            assert (odd.status_code, "percent-encoded segment in UTF-8" in odd.text) == (400, True)


@pytest.mark.clause("decided-managed-users", "decided-foreign-hashes")
async def test_holder_of_a_short_password_moves_at_the_old_login(
    redis_server: RedisServer, store: redis.Redis, tmp_path: Path
) -> None:
    environment = environment_of(redis_server, TOKEN_SERVICE_SEED_FILE=str(CHECKOUT / "examples" / "seed.yaml"))
    program, holder = tmp_path / "block.py", UserCredentials("holder@example.com", "abc123")
    with running_service(tmp_path, environment) as service:
        write_program(program, service.url, "back_end.py", "move_in/at_login.py")
        old_page = runpy.run_path(str(program))
        old_page["move"](holder.username, holder.password, "4711")
        async with httpx2.AsyncClient(base_url=service.url, timeout=MAX_WAIT_SECONDS) as http:
            tokens = tokens_of(await PHONE_APP.log_in(http, holder))
            old_page["move"](holder.username, holder.password, "4711")
            assert (await GATEWAY.introspect(http, tokens["access_token"])).json()["sub"] == "4711"
