"""CORS over HTTP: registered origins may call token, revoke, revokeAll, userinfo and metadata, without credentials."""

import httpx2
import pytest

from service.worker import Worker
from tests.support.browser import register
from tests.support.clients_and_users import (
    ALICE,
    GATEWAY,
    GLOBAL_REVOCATION,
    INTROSPECT,
    PHONE_APP,
    REVOKE,
    REVOKE_ALL,
    TOKEN,
    USERINFO,
    USERS,
    VERIFY,
    OAuthClient,
    bearer,
    login_form,
    tokens_of,
)

METADATA = "/.well-known/oauth-authorization-server"
KNOWN = "https://shop.example"
STRANGER = "https://stranger.example"


def preflight(origin: str) -> dict[str, str]:
    return {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, traceparent, x-anything",
    }


@pytest.mark.clause("decided-cors-preflight", "decided-cors-origins", "7009-2.3-cors")
@pytest.mark.parametrize("address", [TOKEN, REVOKE, REVOKE_ALL, USERINFO])
@pytest.mark.parametrize("origin", [KNOWN, "http://127.0.0.1:9000"])
async def test_a_preflight_from_a_registered_origin_is_answered(
    http: httpx2.AsyncClient, address: str, origin: str
) -> None:
    response = await http.options(address, headers=preflight(origin))

    assert response.status_code in (200, 204)
    assert response.headers["access-control-allow-origin"] == origin
    assert "POST" in response.headers["access-control-allow-methods"]
    # Libraries for tracing and for error reports add headers of their own to each request.
    assert response.headers["access-control-allow-headers"] == "authorization, traceparent, x-anything"
    assert "access-control-allow-credentials" not in response.headers
    assert "origin" in response.headers["vary"].lower()


@pytest.mark.clause("decided-cors-preflight")
@pytest.mark.parametrize("asked", ["", "a b;c", "x" * 5000, "ä"])
async def test_a_malformed_header_list_is_not_echoed(http: httpx2.AsyncClient, asked: str) -> None:
    headers = preflight(KNOWN) | {"Access-Control-Request-Headers": asked}
    response = await http.options(TOKEN, headers=[(name.encode(), value.encode()) for name, value in headers.items()])

    assert response.headers["access-control-allow-origin"] == KNOWN
    assert "access-control-allow-headers" not in response.headers


@pytest.mark.clause("decided-cors-origins")
async def test_a_public_client_may_call_from_any_loopback_port(http: httpx2.AsyncClient, worker: Worker) -> None:
    async def is_allowed(origin: str) -> bool:
        response = await http.options(TOKEN, headers=preflight(origin))
        return response.headers.get("access-control-allow-origin") == origin

    assert await is_allowed("http://127.0.0.1:5173")
    assert await is_allowed("http://127.0.0.1")
    assert not await is_allowed("http://[::1]:5173")
    assert not await is_allowed("https://127.0.0.1:5173")
    assert not await is_allowed("http://127.0.0.1:99999")
    await register(worker, "confidential", "http://[::1]:9000/callback", client_secret_hash="sha256:" + "x" * 43)
    assert not await is_allowed("http://[::1]:5173")
    await register(worker, "shell", cors_origins=("capacitor://localhost",))
    assert await is_allowed("capacitor://localhost")


@pytest.mark.clause("decided-cors-preflight", "decided-cors-origins")
@pytest.mark.parametrize(
    "origin",
    [STRANGER, "null", "http://shop.example", "https://shop.example:444", "https://shop.example.stranger.example", "*"],
)
async def test_any_other_origin_gets_no_permission(http: httpx2.AsyncClient, origin: str) -> None:
    preflight_response = await http.options(TOKEN, headers=preflight(origin))
    called = await http.post(TOKEN, data=PHONE_APP.credentials | login_form(ALICE), headers={"Origin": origin})

    assert "access-control-allow-origin" not in preflight_response.headers
    assert called.status_code == 200
    assert "access-control-allow-origin" not in called.headers
    assert "origin" in called.headers["vary"].lower()


@pytest.mark.clause("decided-cors-origins", "7009-2.3-cors")
async def test_answers_and_errors_may_be_read_by_a_registered_origin(http: httpx2.AsyncClient) -> None:
    headers = {"Origin": KNOWN}
    responses = [
        await http.post(TOKEN, data=PHONE_APP.credentials | login_form(ALICE), headers=headers),
        await http.post(TOKEN, data=PHONE_APP.credentials, headers=headers),
        await http.post(TOKEN, data=OAuthClient("nobody").credentials, headers=headers),
        await http.post(
            TOKEN, content=b"x" * 70_000, headers=headers | {"Content-Type": "application/x-www-form-urlencoded"}
        ),
        await http.post(TOKEN, content=b"{}", headers=headers),
        await http.get(TOKEN, headers=headers),
        await http.post(REVOKE, data=PHONE_APP.credentials | {"token": "x"}, headers=headers),
        await http.post(REVOKE, data=PHONE_APP.credentials, headers=headers),
    ]

    assert [response.status_code for response in responses] == [200, 400, 401, 413, 400, 405, 200, 400]
    for response in responses:
        assert response.headers["access-control-allow-origin"] == KNOWN
        assert "access-control-allow-credentials" not in response.headers
        assert "origin" in response.headers["vary"].lower()


@pytest.mark.clause("decided-cors-preflight", "decided-cors-origins")
async def test_the_metadata_may_be_read_by_a_registered_origin(http: httpx2.AsyncClient) -> None:
    for origin, permission in ((KNOWN, KNOWN), (STRANGER, None)):
        preflight_response = await http.options(
            METADATA, headers=preflight(origin) | {"Access-Control-Request-Method": "GET"}
        )
        got = await http.get(METADATA, headers={"Origin": origin})
        refused = await http.post(METADATA, headers={"Origin": origin})

        assert preflight_response.headers["access-control-allow-methods"] == "GET"
        assert (got.status_code, refused.status_code) == (200, 405)
        for response in (preflight_response, got, refused):
            assert response.headers.get("access-control-allow-origin") == permission
            assert "access-control-allow-credentials" not in response.headers
            assert "origin" in response.headers["vary"].lower()


@pytest.mark.clause("decided-cors-origins")
async def test_a_response_that_caches_keep_varies_by_origin(http: httpx2.AsyncClient) -> None:
    """A cache that kept the response to a request without an origin would give it to pages."""
    responses = [await http.get(METADATA), await http.post(TOKEN, data=PHONE_APP.credentials | login_form(ALICE))]

    assert [response.headers.get("vary") for response in responses] == ["Origin", None]
    assert [response.headers["cache-control"] for response in responses] == [
        "public, max-age=300",
        "no-store, no-cache",
    ]


@pytest.mark.clause("decided-cors-origins", "decided-cors-preflight", "decided-userinfo")
async def test_a_registered_origin_may_ask_who_logged_in(http: httpx2.AsyncClient) -> None:
    headers = bearer(tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"])
    preflight_response = await http.options(USERINFO, headers=preflight(KNOWN))
    responses = [await http.get(USERINFO, headers=headers | {"Origin": KNOWN}), await http.get(USERINFO)]

    assert preflight_response.headers["access-control-allow-methods"] == "GET, POST"
    assert [response.status_code for response in responses] == [200, 401]
    assert [response.headers.get("access-control-allow-origin") for response in responses] == [KNOWN, None]


@pytest.mark.clause("decided-cors-origins", "decided-cors-preflight")
async def test_a_registered_origin_may_end_all_sessions_of_a_user(http: httpx2.AsyncClient) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
    headers = {"Origin": KNOWN}
    responses = [
        await http.post(REVOKE_ALL, headers=headers),
        await http.post(REVOKE_ALL, headers=[*headers.items(), *bearer("a").items(), *bearer("b").items()]),
        await http.get(REVOKE_ALL, headers=headers),
        await http.post(REVOKE_ALL, headers=bearer(access_token) | headers),
        await http.post(REVOKE_ALL, headers=bearer(access_token) | headers),
    ]

    assert [response.status_code for response in responses] == [401, 400, 405, 200, 401]
    for response in responses:
        assert response.headers["access-control-allow-origin"] == KNOWN
        assert "www-authenticate" in response.headers["access-control-expose-headers"].lower()
        assert "access-control-allow-credentials" not in response.headers
        assert "origin" in response.headers["vary"].lower()


@pytest.mark.clause("decided-lookups-without-cors")
@pytest.mark.parametrize("address", [VERIFY, INTROSPECT, GLOBAL_REVOCATION, USERS + "x"])
async def test_no_origin_may_read_a_lookup(http: httpx2.AsyncClient, address: str) -> None:
    called = await http.post(address, data=GATEWAY.credentials | {"token": "x"}, headers={"Origin": KNOWN})
    preflight_response = await http.options(address, headers=preflight(KNOWN))

    for response in (called, preflight_response):
        assert not [name for name in response.headers if name.startswith("access-control-")]


@pytest.mark.clause("7009-2.3-no-jsonp")
async def test_revoke_knows_no_callback(http: httpx2.AsyncClient) -> None:
    got = await http.get(f"{REVOKE}?token=x&callback=run")
    posted = await http.post(f"{REVOKE}?callback=run", data=PHONE_APP.credentials | {"token": "x"})

    assert got.status_code == 405
    assert (posted.status_code, posted.content) == (200, b"")
