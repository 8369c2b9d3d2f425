"""The commands of the service for tests, as a client and a gateway see what they do."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from token_service_testing.pytest_plugin import TokenService

from service.gateway import BearerLookup, StoreUnavailable
from tests.support.clients_and_users import BACK_OFFICE, GATEWAY, INTROSPECT, TOKEN, USERS, VERIFY, bearer
from tests.support.waiting import until_true

ALICE, BOB = "alice@example.com", "bob@example.com"
APP = "phone-app"

Refresh = Callable[[str], httpx2.Response]


@pytest.fixture
def refresh(api: httpx2.Client) -> Refresh:
    def send(refresh_token: str) -> httpx2.Response:
        form = {"grant_type": "refresh_token", "client_id": APP, "refresh_token": refresh_token}
        return api.post(TOKEN, data=form)

    return send


@pytest.fixture
def verify(api: httpx2.Client) -> Callable[[dict[str, Any]], int]:
    return lambda tokens: api.get(VERIFY, headers=bearer(tokens["access_token"])).status_code


Verify = Callable[[dict[str, Any]], int]


def test_tokens_need_no_password(token_service: TokenService, api: httpx2.Client) -> None:
    tokens = token_service.tokens(username=ALICE, client_id=APP, scope="realm:main role:organisation")

    headers = api.get(VERIFY, headers=bearer(tokens["access_token"])).headers
    assert (headers["x-auth-user"], headers["x-auth-client"]) == (ALICE.replace("%", "%25"), APP)
    assert headers["x-auth-scope"] == tokens["scope"] == "realm:main role:organisation"
    assert (tokens["token_type"], tokens["expires_in"]) == ("Bearer", 600)


@pytest.mark.parametrize(("username", "realm"), [("new@example.com", "main"), ("carol@coop.example", "cep")])
def test_tokens_are_for_any_user_of_any_realm(
    token_service: TokenService, verify: Verify, refresh: Refresh, username: str, realm: str
) -> None:
    tokens = token_service.tokens(username=username, client_id=APP, scope=f"realm:{realm} role:enduser", realm=realm)

    assert verify(tokens) == refresh(tokens["refresh_token"]).status_code == 200


def test_clock_ends_access_tokens_and_grace(token_service: TokenService, verify: Verify, refresh: Refresh) -> None:
    tokens = token_service.tokens(username=ALICE, client_id=APP)

    token_service.advance(seconds=590)
    assert verify(tokens) == 200
    token_service.advance(seconds=10.5)
    assert verify(tokens) == 401
    assert refresh(tokens["refresh_token"]).status_code == 200
    token_service.advance(seconds=290)
    assert refresh(tokens["refresh_token"]).status_code == 200
    token_service.advance(seconds=10.5)
    assert refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"


async def test_cached_lookup_of_an_api_follows_the_clock(token_service: TokenService) -> None:
    tokens = token_service.tokens(username=ALICE, client_id=APP)

    async with BearerLookup(token_service.redis_url) as lookup:

        async def is_dead() -> bool:
            return await lookup.lookup(tokens["access_token"]) is None

        token_service.advance(seconds=590)
        assert [await is_dead() for _ in range(3)] == [False] * 3, "the last answer is from the cache"
        token_service.advance(seconds=10.5)
        await until_true(is_dead, "the cache to forget the token")


async def test_lookup_of_an_api_fails_in_an_outage(token_service: TokenService) -> None:
    tokens = token_service.tokens(username=ALICE, client_id=APP)

    async def find() -> bool:
        async with BearerLookup(token_service.redis_url) as lookup:
            return await lookup.lookup(tokens["access_token"]) is not None

    token_service.outage(is_on=True)
    with pytest.raises(StoreUnavailable):
        await find()
    token_service.advance(seconds=590)
    token_service.outage(is_on=False)
    assert await find()
    token_service.advance(seconds=10.5)
    assert not await find()


def test_end_revokes_what_one_user_has(token_service: TokenService, verify: Verify, refresh: Refresh) -> None:
    tokens, others = (token_service.tokens(username=name, client_id=APP) for name in (ALICE, BOB))

    token_service.end(username=ALICE)

    assert (verify(tokens), verify(others)) == (401, 200)
    assert refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
    assert verify(token_service.tokens(username=ALICE, client_id=APP)) == 200


def test_lost_response_has_no_byte_and_can_be_repeated(token_service: TokenService, refresh: Refresh) -> None:
    tokens = token_service.tokens(username=ALICE, client_id=APP)

    token_service.lose(answers=2)
    for _ in range(2):
        with pytest.raises(httpx2.RemoteProtocolError, match="without sending a response"):
            refresh(tokens["refresh_token"])

    assert refresh(tokens["refresh_token"]).status_code == 200
    token_service.advance(seconds=301)
    assert refresh(tokens["refresh_token"]).status_code == 400, "the work was done"


def test_outage_is_503_until_it_ends(token_service: TokenService, verify: Verify, refresh: Refresh) -> None:
    tokens = token_service.tokens(username=ALICE, client_id=APP)

    for _ in range(3):
        token_service.outage(is_on=True)
        token_service.outage(is_on=True)
        refused = refresh(tokens["refresh_token"])
        assert (refused.status_code, refused.json()["error"]) == (503, "temporarily_unavailable")
        assert refused.headers["retry-after"]
        assert verify(tokens) == 503
        token_service.outage(is_on=False)
        assert verify(tokens) == refresh(tokens["refresh_token"]).status_code == 200


def test_reset_brings_back_the_state_of_the_start(
    token_service: TokenService, api: httpx2.Client, verify: Verify, refresh: Refresh
) -> None:
    tokens = token_service.tokens(username="new@example.com", client_id=APP)
    introspected = api.post(INTROSPECT, data=GATEWAY.credentials | {"token": tokens["access_token"]})
    began = introspected.json()["iat"]
    assert api.delete(f"{USERS}{BOB}", headers=BACK_OFFICE.basic).status_code == 204
    login = {"grant_type": "password", "client_id": APP, "scope": "realm:main role:enduser"}
    login |= {"username": BOB, "password": "hunter2 hunter2 hunter2"}
    assert api.post(TOKEN, data=login).status_code == 400
    token_service.advance(seconds=100_000)
    token_service.lose(answers=1)
    token_service.outage(is_on=True)

    token_service.reset()

    assert verify(tokens) == 401
    assert refresh(tokens["refresh_token"]).status_code == 400
    answer = api.post(TOKEN, data=login)
    assert (answer.status_code, verify(answer.json())) == (200, 200)
    assert api.post(TOKEN, data=login | {"username": "new@example.com"}).status_code == 400
    introspected = api.post(INTROSPECT, data=GATEWAY.credentials | {"token": answer.json()["access_token"]})
    assert introspected.json()["iat"] < began + 100_000


@pytest.mark.parametrize(
    ("command", "arguments", "told"),
    [
        ("tokens", {"username": ALICE}, "client_id"),
        ("tokens", {"username": ALICE, "client_id": "nobody"}, "client nobody not found"),
        ("tokens", {"username": ALICE, "client_id": APP, "scope": "role:king"}, "role:king"),
        ("tokens", {"username": ALICE, "client_id": APP, "realm": "cep"}, "realm:cep"),
        (
            "tokens",
            {"username": BOB, "client_id": APP, "scope": "realm:main role:partner"},
            "role:partner",
        ),
        ("advance", {}, "seconds"),
        ("advance", {"seconds": -1}, "0.0"),
        ("advance", {"seconds": "soon"}, ""),
        ("lose", {"answers": 1, "more": 1}, "more"),
        ("end", {"username": 5.0}, ""),
        ("outage", {}, "is_on"),
        ("close", {}, "Unknown path"),
    ],
)
def test_wrong_command_is_refused(
    token_service: TokenService, api: httpx2.Client, command: str, arguments: dict[str, Any], told: str
) -> None:
    refused = api.post(f"/_test/{command}", json=arguments)

    assert 400 <= refused.status_code < 500
    assert told in refused.json()["error_description"]
    with pytest.raises(RuntimeError, match=command):
        getattr(token_service, command)(**arguments)


@pytest.mark.clause("decided-i9-no-offset-from-outside")
async def test_service_itself_has_no_such_command(http: httpx2.AsyncClient) -> None:
    for command in ("tokens", "advance", "end", "lose", "outage", "reset"):
        assert (await http.post(f"/_test/{command}", json={})).status_code == 404
