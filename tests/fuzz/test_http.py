"""Any request is answered as docs/openapi.yaml says, and never by "unforeseen".

The HTTP client of the tests compares each response with the file. Broken or partial HTTP requests are tested elsewhere.
"""

import io
import re
from base64 import b64encode
from collections.abc import AsyncIterator
from itertools import count
from urllib.parse import quote, unquote, urlencode

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp, Message

from service.app import build_app
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, http_client_for, running_lifespan
from tests.fuzz.generators import Bend, bend, bends, bent, bent_bytes, data
from tests.support.browser import (
    AUTHORIZATION,
    CHALLENGE,
    CONSENT,
    LOGIN,
    SESSIONS,
    SWITCH,
    Browser,
    Page,
    authorization_url,
)
from tests.support.clients_and_users import (
    ALICE,
    BACK_OFFICE,
    GLOBAL_REVOCATION,
    INTROSPECT,
    PHONE_APP,
    PHONE_CALLBACK,
    REVOKE,
    REVOKE_ALL,
    TOKEN,
    USERS,
    VERIFY,
    WEB_SHOP,
    login_form,
)
from tests.support.openapi import check_answer

FORM = b"application/x-www-form-urlencoded"
ONE_OF_US = WEB_SHOP.credentials | {"token": "tsat1_0a3" + "A" * 44}
FORMS = tuple(
    urlencode(form).encode()
    for form in (
        PHONE_APP.credentials | login_form(ALICE),
        WEB_SHOP.credentials | {"grant_type": "refresh_token", "refresh_token": "tsrt1_0a3" + "A" * 52},
        PHONE_APP.credentials
        | {"grant_type": "authorization_code", "code": "tsac1_0a3" + "A" * 44, "redirect_uri": PHONE_CALLBACK},
        ONE_OF_US | {"token_type_hint": "access_token"},
    )
)
SUB_IDS = (
    b'{"sub_id": {"format": "opaque", "id": "IgxQA5Y1JuOXPj3Di524gg"}}',
    b'{"sub_id": {"format": "iss_sub", "iss": "http://127.0.0.1:8000", "sub": "IgxQA5Y1JuOXPj3Di524gg"}}',
    b'{"sub_id": {"format": "email", "email": "alice@example.com"}, "x": ["\\ud83d\\ude00", -1.5e3, null]}',
)
USER_CHANGES = (
    b'{"password": "a long password", "roles": ["enduser", "partner"], "name": "Zo\\u00eb", "disabled": false}',
    b'{"password_hash": "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$c2FsdHNhbHRzYWx0c2FsdA", "roles": []}',
)
BASIC = b"Basic " + b64encode(b"web-shop:web-shop-secret")
BEARER = b"Bearer tsat1_0a3" + b"A" * 44
HEADERS = st.sampled_from(
    [
        "authorization",
        "cookie",
        "origin",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-request-id",
        "content-type",
        "content-length",
        "accept",
        "traceparent",
        "host",
        "access-control-request-method",
        "sec-fetch-dest",
        "expect",
    ]
)
headers = st.dictionaries(HEADERS, bent_bytes(BASIC, BEARER, FORM, b"null"), max_size=2)
Step = tuple[str, str, list[Bend[bytes]], list[Bend[bytes]], dict[str, bytes]]
addresses = (f"198.18.{n // 250 % 250}.{n % 250}" for n in count())
"""An address may open only a limited number of pages."""

on_one_redis = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
fewer = settings(on_one_redis, max_examples=settings().max_examples // 4)


@pytest.fixture
async def app(
    make_settings: MakeSettings, clock: Clock, registry: None, json_logs: io.StringIO
) -> AsyncIterator[ASGIApp]:
    """The application with throttles that let garbage through, and a log that must show no password."""
    limits = ("LOGIN_ATTEMPTS", "LOGIN_ATTEMPTS_PER_USER", "LOGIN_ATTEMPTS_PER_ADDRESS", "CLIENT_ATTEMPTS")
    plenty = {f"TOKEN_SERVICE_{name}": "1000000/minute" for name in limits}
    app = build_app(Worker(make_settings(TOKEN_SERVICE_TRUSTED_PROXIES="198.18.0.0/15", **plenty), lambda: 0))
    async with running_lifespan(app):
        yield app
    assert json_logs.getvalue()
    for secret in (ALICE.password, "web-shop-secret"):
        assert not [line for line in json_logs.getvalue().splitlines() if secret in line]


async def send(
    app: ASGIApp, method: str, path: str, headers: dict[str, bytes], *, query: bytes = b"", body: bytes = b""
) -> httpx2.Response:
    """Send the path as it stands, in ASCII. What the service raises is raised here. Every client would refuse this."""
    heads = [(name.encode(), value) for name, value in ({"content-type": FORM} | headers).items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "root_path": "",
        "query_string": query,
        "headers": heads,
        "client": (next(addresses), 50_000),
        "server": ("127.0.0.1", 8000),
    }
    requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    answers: list[Message] = []

    async def receive() -> Message:
        return requests.pop() if requests else {"type": "http.disconnect"}

    async def note(message: Message) -> None:
        answers.append(message)

    await app(scope, receive, note)
    response = httpx2.Response(
        answers[0]["status"],
        headers=answers[0]["headers"],
        content=b"".join(message.get("body", b"") for message in answers[1:]),
        request=httpx2.Request(method, f"http://127.0.0.1:8000{path}"),
    )
    check_answer(response)
    return response


@on_one_redis
@given(st.sampled_from([TOKEN, REVOKE, INTROSPECT, REVOKE_ALL]), headers, bent_bytes(*FORMS))
async def test_endpoints_for_clients(app: ASGIApp, path: str, headers: dict[str, bytes], body: bytes) -> None:
    await send(app, "POST", path, headers, body=body)


@on_one_redis
@given(headers, bent_bytes(*SUB_IDS))
async def test_global_token_revocation(app: ASGIApp, headers: dict[str, bytes], body: bytes) -> None:
    own = {"content-type": b"application/json", "authorization": BACK_OFFICE.basic["Authorization"].encode()}

    assert (await send(app, "POST", GLOBAL_REVOCATION, own, body=body)).status_code in (204, 400)
    await send(app, "POST", GLOBAL_REVOCATION, own | headers, body=body)


@on_one_redis
@given(st.one_of(st.text().map(quote), st.text("aA0%/.;+:@!'\\")), headers, bent_bytes(*USER_CHANGES))
async def test_users(app: ASGIApp, name: str, headers: dict[str, bytes], body: bytes) -> None:
    own = {"content-type": b"application/json", "authorization": BACK_OFFICE.basic["Authorization"].encode()}

    assert (await send(app, "PUT", USERS + name, own, body=body)).status_code in (200, 201, 400, 403)
    assert (await send(app, "DELETE", USERS + name, own | headers)).status_code < 500


@on_one_redis
@given(
    st.sampled_from([VERIFY, "/healthz", "/.well-known/oauth-authorization-server", "/authorization/callback"]),
    headers,
    bent_bytes(b"scope=a", b"state=tsxl1_0a3" + b"A" * 44 + b"&code=c"),
)
async def test_addresses_with_a_query(app: ASGIApp, path: str, headers: dict[str, bytes], query: bytes) -> None:
    await send(app, "GET", path, headers, query=query)


QUERY = authorization_url(
    code_challenge=CHALLENGE, code_challenge_method="S256", state="s", scope="role:enduser"
).partition("?")[2]


@on_one_redis
@given(headers, bent(st.just(QUERY.encode()), data))
async def test_an_authorization_request(app: ASGIApp, headers: dict[str, bytes], query: bytes) -> None:
    """A redirect goes only to the client's own address. An application may choose its port."""
    response = await send(app, "GET", AUTHORIZATION, headers, query=query)

    location = response.headers.get("location", f"{PHONE_CALLBACK}?")
    assert re.match(r"http://127\.0\.0\.1(:[0-9]{1,5})?/callback\?", location)


PATHS = (LOGIN, CONSENT, SWITCH, SESSIONS, "/sessions/end", "/sessions/end-all", "/sessions/sign-out")
steps = st.tuples(
    st.sampled_from(["", "", *PATHS]), st.sampled_from(["GET", "POST", "POST"]), bends(data), bends(data), headers
)


@fewer
@given(st.booleans(), st.lists(steps, min_size=1, max_size=3))
async def test_pages_and_their_forms(app: ASGIApp, is_logged_in: bool, steps: list[Step]) -> None:
    """The fields and cookies of a real page are changed. Without a path they go to that page's own."""
    async with http_client_for(app, next(addresses)) as http:
        browser = Browser(http)
        page = await browser.open(authorization_url())
        if is_logged_in:
            page = await browser.log_in(page)
    form = Page(page).forms[0]
    fields = {"username": ALICE.username, "password": ALICE.password, "decision": "allow", "realm": "main", "id": "s"}
    body = urlencode(fields | form.fields).encode()
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookie_values.items()).encode()

    for path, method, cookie_bends, body_bends, headers in steps:
        whole = {"cookie": bend(cookies, cookie_bends)} | headers
        some = bend(body, body_bends)
        await send(app, method, path or form.action, whole, query=some if method == "GET" else b"", body=some)
