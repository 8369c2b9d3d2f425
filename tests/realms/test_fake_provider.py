"""The fake provider itself: an independent client finds its defaults correct, and each change takes effect."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, quote_plus, urlsplit

import httpx2
import msgspec
import pytest
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import BadSignatureError
from joserfc.jwk import KeySet, OctKey, RSAKey

from service.registry.seed_file.schema import RealmEntry
from tests.support.browser import CHALLENGE, VERIFIER
from tests.support.fake_provider import (
    AUTHORIZE,
    CLAIMS,
    CLIENT_ID,
    CLIENT_SECRET,
    INTROSPECT,
    KEYS,
    OAUTH_METADATA,
    OPENID_METADATA,
    PASSWORD,
    TOKEN,
    USERINFO,
    USERNAME,
    Answer,
    Drop,
    Endless,
    FakeProvider,
    Hang,
    Raw,
    Reply,
    Slowly,
    realm_of,
    running_provider,
)

CALLBACK = "http://127.0.0.1:8000/authorization/callback"
BASIC = "Basic " + base64.b64encode(b"token-service:secret+at+the+organisation").decode()
PASSWORD_GRANT = {"grant_type": "password", "username": USERNAME, "password": PASSWORD, "scope": "openid"}


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with running_provider() as provider:
        yield provider


@pytest.fixture
async def http(provider: FakeProvider) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=provider.url, verify=False) as http:
        yield http


def authorization_address(**changes: str | None) -> Mapping[str, str]:
    query: dict[str, str | None] = {
        "response_type": "code",
        "client_id": CLIENT_ID,
        "redirect_uri": CALLBACK,
        "scope": "openid email",
        "state": "a state",
        "nonce": "a nonce",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    }
    return {name: value for name, value in (query | changes).items() if value is not None}


async def open_callback(http: httpx2.AsyncClient, **changes: str | None) -> dict[str, str]:
    """Return the parameters that the provider adds to the callback."""
    response = await http.get(AUTHORIZE, params=authorization_address(**changes))
    assert response.status_code == 302, response.text
    address = urlsplit(response.headers["location"])
    assert address._replace(query="").geturl() == CALLBACK
    return dict(parse_qsl(address.query, strict_parsing=True))


async def redeem(http: httpx2.AsyncClient, code: str, **changes: str) -> httpx2.Response:
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK, "code_verifier": VERIFIER}
    return await http.post(TOKEN, data=form | changes, headers={"authorization": BASIC})


async def log_in(http: httpx2.AsyncClient, **changes: str) -> httpx2.Response:
    return await http.post(TOKEN, data=PASSWORD_GRANT | changes, headers={"authorization": BASIC})


async def id_token_of(http: httpx2.AsyncClient) -> str:
    return str((await log_in(http)).json()["id_token"])


async def read_id_token(http: httpx2.AsyncClient, id_token: str) -> dict[str, Any]:
    """Return the claims, if a published key has signed them."""
    keys = KeySet.import_key_set((await http.get(KEYS)).json())
    return jwt.decode(id_token, keys, algorithms=["RS256"]).claims


def header_of(id_token: str) -> dict[str, Any]:
    return dict(json.loads(base64.urlsafe_b64decode(id_token.partition(".")[0] + "==")))


async def test_a_foreign_client_finds_its_way_by_the_metadata_and_learns_who_it_is(
    provider: FakeProvider, http: httpx2.AsyncClient
) -> None:
    metadata = (await http.get(OPENID_METADATA)).json()
    assert metadata["issuer"] == provider.url
    secret = quote_plus(CLIENT_SECRET)  # authlib does not encode the two halves
    async with AsyncOAuth2Client(
        CLIENT_ID, secret, redirect_uri=CALLBACK, scope="openid email", code_challenge_method="S256"
    ) as oauth:
        endpoint = metadata["authorization_endpoint"]
        address, state = oauth.create_authorization_url(endpoint, code_verifier=VERIFIER, nonce="a nonce")
        redirect = (await http.get(address)).headers["location"]
        tokens = await oauth.fetch_token(
            metadata["token_endpoint"],
            authorization_response=redirect,
            state=state,
            code_verifier=VERIFIER,
        )
        answer = await oauth.get(metadata["userinfo_endpoint"])

    assert dict(parse_qsl(urlsplit(redirect).query))["iss"] == provider.url
    assert (tokens["token_type"], tokens["expires_in"], tokens["scope"]) == ("Bearer", 600, "openid email")
    claims = CodeIDToken(
        await read_id_token(http, tokens["id_token"]),
        header_of(tokens["id_token"]),
        {"iss": {"essential": True, "value": provider.url}},
        {"client_id": CLIENT_ID, "nonce": "a nonce"},
    )
    claims.validate()
    assert claims.items() >= CLAIMS.items()
    assert answer.json() == CLAIMS


async def test_a_code_works_once_and_only_for_who_asked_for_it(http: httpx2.AsyncClient) -> None:
    answer = await open_callback(http)
    assert answer["state"] == "a state"
    assert (await redeem(http, answer["code"])).status_code == 200
    assert (await redeem(http, answer["code"])).json()["error"] == "invalid_grant"

    for changes in ({"redirect_uri": f"{CALLBACK}/"}, {"code_verifier": VERIFIER[::-1]}):
        refused = await redeem(http, (await open_callback(http))["code"], **changes)
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")


@pytest.mark.parametrize("name", ["client_id", "response_type", "redirect_uri", "code_challenge_method"])
async def test_an_authorization_request_with_a_mistake_leads_nowhere(http: httpx2.AsyncClient, name: str) -> None:
    assert (await http.get(AUTHORIZE, params=authorization_address(**{name: None}))).status_code == 400
    assert (await http.get(AUTHORIZE, params=authorization_address(code_challenge="plain"))).status_code == 400


async def test_without_openid_or_a_nonce_none_is_given(http: httpx2.AsyncClient) -> None:
    tokens = (await redeem(http, (await open_callback(http, scope="email"))["code"])).json()
    assert "id_token" not in tokens

    claims = await read_id_token(http, await id_token_of(http))
    assert "nonce" not in claims


async def test_only_the_right_password_logs_in(http: httpx2.AsyncClient) -> None:
    assert (await log_in(http)).status_code == 200
    refused = await log_in(http, password="guess")
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")


@pytest.mark.parametrize(
    "credentials",
    [
        "Basic " + base64.b64encode(b"token-service:secret at the organisation").decode(),
        "Basic " + base64.b64encode(b"token-service:another+secret").decode(),
        "Basic !",
        "Bearer token-service",
    ],
)
@pytest.mark.parametrize("path", [TOKEN, INTROSPECT])
async def test_a_client_that_does_not_prove_itself_gets_nothing(
    http: httpx2.AsyncClient, path: str, credentials: str
) -> None:
    response = await http.post(path, data=PASSWORD_GRANT | {"token": "x"}, headers={"authorization": credentials})
    assert (response.status_code, response.json()["error"]) == (401, "invalid_client")


async def test_an_access_token_tells_of_its_user(http: httpx2.AsyncClient) -> None:
    access_token = (await log_in(http)).json()["access_token"]
    bearer = {"authorization": f"Bearer {access_token}"}
    assert (await http.get(USERINFO, headers=bearer)).json() == CLAIMS
    assert (await http.get(USERINFO, headers={"authorization": "Bearer guess"})).status_code == 401

    for token, is_active in ((access_token, True), ("guess", False)):
        answer = (await http.post(INTROSPECT, data={"token": token}, headers={"authorization": BASIC})).json()
        assert answer["active"] is is_active
        assert (answer.get("username"), answer.get("sub")) == ((USERNAME, CLAIMS["sub"]) if is_active else (None, None))


async def test_every_request_is_remembered(provider: FakeProvider, http: httpx2.AsyncClient) -> None:
    await http.get(AUTHORIZE, params=authorization_address(state="ä & b"))
    await log_in(http)
    await http.get(OAUTH_METADATA)

    assert [(request.method, request.path) for request in provider.requests] == [
        ("GET", AUTHORIZE),
        ("POST", TOKEN),
        ("GET", OAUTH_METADATA),
    ]
    assert provider.calls(AUTHORIZE)[0].query["state"] == "ä & b"
    (login,) = provider.calls(TOKEN)
    assert login.form == PASSWORD_GRANT
    assert login.headers["authorization"] == BASIC


async def test_what_it_says_of_the_user_can_be_changed(provider: FakeProvider, http: httpx2.AsyncClient) -> None:
    provider.claims["email"] = "zoe@elsewhere.example"
    del provider.claims["name"]
    provider.id_token_claims = {"iss": "https://other.example", "exp": None}
    provider.userinfo = {"sub": "another"}
    provider.introspection = {"active": False}
    provider.token_response = {"token_type": "mac", "expires_in": None}
    provider.metadata = {"issuer": "https://other.example", "jwks_uri": None}

    tokens = (await log_in(http)).json()
    assert (tokens["token_type"], "expires_in" in tokens) == ("mac", False)
    claims = await read_id_token(http, tokens["id_token"])
    assert (claims["iss"], claims["sub"], "exp" in claims) == ("https://other.example", CLAIMS["sub"], False)
    user = (await http.get(USERINFO, headers={"authorization": f"Bearer {tokens['access_token']}"})).json()
    assert user == {"sub": "another", "email": "zoe@elsewhere.example", "email_verified": True}
    form = {"token": tokens["access_token"]}
    assert not (await http.post(INTROSPECT, data=form, headers={"authorization": BASIC})).json()["active"]
    metadata = (await http.get(OPENID_METADATA)).json()
    assert (metadata["issuer"], "jwks_uri" in metadata) == ("https://other.example", False)


async def test_the_way_back_can_be_changed(provider: FakeProvider, http: httpx2.AsyncClient) -> None:
    provider.redirect = {"code": None, "error": "access_denied", "iss": "https://other.example"}

    assert await open_callback(http) == {"error": "access_denied", "iss": "https://other.example", "state": "a state"}


async def test_id_tokens_can_be_signed_by_whoever_has_no_right_to(
    provider: FakeProvider, http: httpx2.AsyncClient
) -> None:
    published = provider.keys[0]
    other = RSAKey.generate_key(2048)

    provider.sign_with(other)
    id_token = await id_token_of(http)
    assert header_of(id_token) == {"alg": "RS256", "typ": "JWT", "kid": published.kid}
    with pytest.raises(BadSignatureError):
        await read_id_token(http, id_token)

    provider.keys = [other]
    assert await read_id_token(http, await id_token_of(http))

    provider.sign_with(b"a secret of thirty-two bytes and more")
    id_token = await id_token_of(http)
    secret = OctKey.import_key("a secret of thirty-two bytes and more")
    assert header_of(id_token)["alg"] == "HS256"
    assert jwt.decode(id_token, secret, algorithms=["HS256"]).claims["sub"] == CLAIMS["sub"]

    provider.sign_with(None)
    provider.id_token_header = {"kid": None}
    id_token = await id_token_of(http)
    assert (header_of(id_token), id_token[-1]) == ({"alg": "none", "typ": "JWT"}, ".")

    provider.sign_with(published, "RS512")
    assert header_of(await id_token_of(http))["alg"] == "RS512"


async def test_an_answer_can_be_replaced_and_put_back(provider: FakeProvider, http: httpx2.AsyncClient) -> None:
    provider.answer(TOKEN, Reply(503, {"error": "ä"}, {"Retry-After": "5", "Content-Type": "text/plain"}))
    response = await log_in(http)
    assert (response.status_code, response.json()) == (503, {"error": "ä"})
    assert (response.headers["retry-after"], response.headers["content-type"]) == ("5", "text/plain")

    provider.answer(TOKEN, Slowly(Reply(200, {"slow": True}), pause_seconds=0.001, slice_bytes=10))
    assert (await log_in(http)).json() == {"slow": True}

    provider.answer(TOKEN, Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort"))
    with pytest.raises(httpx2.RemoteProtocolError):
        await log_in(http)

    provider.answer(TOKEN, Drop())
    with pytest.raises(httpx2.RemoteProtocolError):
        await log_in(http)

    provider.answer(TOKEN, None)
    assert (await log_in(http)).status_code == 200
    assert len(provider.calls(TOKEN)) == 5


async def test_a_request_can_be_left_hanging(provider: FakeProvider, http: httpx2.AsyncClient) -> None:
    provider.answer(TOKEN, Hang())
    logins = [asyncio.create_task(log_in(http)) for _ in range(3)]
    await provider.await_requests(TOKEN, 3)
    assert provider.waiting == 3
    assert not any(login.done() for login in logins)

    for login in logins:
        login.cancel()
    await provider.await_idle()
    assert provider.waiting == 0


@pytest.mark.parametrize("answer", [Hang(), Endless(), Slowly(Reply(200, b"late"), pause_seconds=3600)])
async def test_its_end_leaves_nobody_waiting(answer: Answer) -> None:
    async with httpx2.AsyncClient() as http:
        async with running_provider() as provider:
            provider.answer(KEYS, answer)
            asking = asyncio.create_task(http.get(provider.url + KEYS))
            await provider.await_requests(KEYS)
        with suppress(httpx2.TransportError):  # a body without a length is accepted
            await asking
    assert provider.waiting == 0


async def test_an_answer_can_be_without_end(provider: FakeProvider, http: httpx2.AsyncClient) -> None:
    provider.answer(KEYS, Endless(chunk=b"x" * 1000))
    read = 0
    async with http.stream("GET", KEYS) as answer:
        async for piece in answer.aiter_bytes():
            read += len(piece)
            if read > 5_000_000:
                break
    await provider.await_idle()


async def test_it_can_go_away_and_come_back(provider: FakeProvider, http: httpx2.AsyncClient) -> None:
    async with provider.stopped():
        with pytest.raises(httpx2.ConnectError):
            await http.get(KEYS)
    assert (await http.get(KEYS)).status_code == 200


@pytest.mark.parametrize("query", ["a=1&a=2", "a=%ff", "nothing"])
async def test_a_request_that_is_none_is_refused(http: httpx2.AsyncClient, query: str) -> None:
    assert (await http.get(f"{AUTHORIZE}?{query}")).status_code == 400


def test_its_realm_can_be_seeded() -> None:
    provider = FakeProvider()
    entry = msgspec.convert(realm_of(provider), RealmEntry)
    assert (entry.issuer, entry.client_secret, entry.default_roles) == (provider.url, CLIENT_SECRET, ("enduser",))

    changed = realm_of(provider, issuer=None, username_claim="email")
    assert (changed.get("issuer"), changed["username_claim"]) == (None, "email")
