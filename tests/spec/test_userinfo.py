"""/oauth2/v1/userinfo over HTTP: tells an application who logged in."""

import httpx2
import pytest
import redis

from service.protocol.user import User, identify_user
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, make_code, serving
from tests.support.browser import change_user
from tests.support.clients_and_users import (
    ALICE,
    PHONE_APP,
    PHONE_CALLBACK,
    USERINFO,
    UserCredentials,
    assert_error,
    bearer,
    tokens_of,
)
from tests.support.redis_monitor import ONE_SERVER, recording_commands

SUBJECT = identify_user("main", ALICE.username).digest


async def log_in(http: httpx2.AsyncClient) -> dict[str, str]:
    """Return the header of a new access token."""
    return bearer(tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"])


@pytest.mark.clause("decided-userinfo", "6750-2.1-authorization-header-at-lookups")
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_userinfo_describes_a_user_of_realm_main(http: httpx2.AsyncClient, method: str) -> None:
    response = await http.request(method, USERINFO, headers=await log_in(http))

    assert response.json() == {
        "sub": SUBJECT,
        "username": ALICE.username,
        "preferred_username": ALICE.username,
        "realm": "main",
        "scope": "realm:main role:enduser",
        "roles": ["enduser"],
        "name": "Alice",
        "email": ALICE.username,
    }
    assert response.headers["cache-control"] == "no-store, no-cache"


@pytest.mark.clause("decided-userinfo")
async def test_an_external_user_needs_no_record(http: httpx2.AsyncClient, worker: Worker) -> None:
    code = await make_code(worker, UserCredentials("zoe@example.org", "", "cep"), scope="realm:cep role:enduser")
    tokens = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))

    body = (await http.get(USERINFO, headers=bearer(tokens["access_token"]))).json()

    assert body["sub"] == User(realm="cep", username="zoe@example.org").subject
    assert (body["username"], body["realm"], body["roles"]) == ("zoe@example.org", "cep", ["enduser"])
    assert not {"name", "email"} & body.keys()


@pytest.mark.clause("decided-userinfo")
async def test_what_is_not_known_is_left_out(http: httpx2.AsyncClient, worker: Worker) -> None:
    headers = await log_in(http)
    await change_user(worker, ALICE, name="")

    assert "name" not in (await http.get(USERINFO, headers=headers)).json()


@pytest.mark.clause("decided-userinfo", "decided-bearer-invalid")
@pytest.mark.parametrize("other", [{"id": "another-person"}, {"renamed_to": "other@example.com"}])
async def test_a_token_never_describes_another_user(
    http: httpx2.AsyncClient, worker: Worker, other: dict[str, str]
) -> None:
    headers = await log_in(http)
    await change_user(worker, ALICE, **other)

    assert_error(await http.get(USERINFO, headers=headers), 401, "invalid_token")


@pytest.mark.clause("decided-userinfo", "decided-bearer-invalid", "decided-bearer-missing")
async def test_a_bearer_that_is_not_live_is_refused(http: httpx2.AsyncClient, clock: Clock) -> None:
    headers = await log_in(http)
    repeated = await http.get(USERINFO, headers=[*headers.items(), *headers.items()])
    missing = await http.post(USERINFO, data={"access_token": headers["Authorization"].removeprefix("Bearer ")})
    clock.advance(600)

    assert_error(repeated, 400, "invalid_request")
    assert_error(await http.get(USERINFO, headers=headers), 401, "invalid_token")
    assert (missing.status_code, missing.content) == (401, b"")
    assert missing.headers["www-authenticate"] == 'Bearer realm="token-service"'


@pytest.mark.clause("decided-userinfo", "decided-verify-cache")
@ONE_SERVER
async def test_userinfo_answers_from_memory(
    make_settings: MakeSettings, clock: Clock, registry: None, store: redis.Redis
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_VERIFY_CACHE="on"), clock) as http:
        headers = await log_in(http)
        first, _ = [await http.get(USERINFO, headers=headers) for _ in range(2)]  # cached from the second use on
        with recording_commands(store) as commands:
            again = await http.get(USERINFO, headers=headers)

    assert again.json() == first.json()
    assert not [command for command in commands if "access:" in command or "user:" in command]
