"""The parts of a request (form, credentials, tokens, scope, addresses, cookies) are read or refused."""

from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import urlencode, urlsplit

from hypothesis import assume, given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.crypto.keyring import (
    Keyring,
    make_access_token,
    make_browser_session,
    make_consent,
    make_first_refresh_token,
    make_random_token,
)
from service.gateway.bearer import parse_required_scope
from service.protocol.authorization import ReturnAddress, is_registered, make_location, parse_query
from service.protocol.bearer import parse_bearer
from service.protocol.client import Client
from service.protocol.errors import (
    BearerMissing,
    InsufficientScope,
    InvalidClient,
    InvalidRequest,
    InvalidScope,
    InvalidToken,
    MalformedBearer,
)
from service.protocol.negotiation import find_language, parse_preferences, parse_ui_locales
from service.protocol.parameters import TOKEN_PARAMETERS, parse_client_credentials, parse_form
from service.protocol.scope import REALMS, ROLES, parse_realm, parse_scope
from service.protocol.token_form import (
    RandomToken,
    is_access_token,
    parse_access_token,
    parse_authorization_code,
    parse_browser_session,
    parse_consent,
)
from service.protocol.uri import find_server_mistake, find_uri_mistake
from service.protocol.user import User
from service.web.api.verify import parse_needed_scope
from service.web.pages.cookies import BrowserCookies
from service.web.request.client_address import UNKNOWN, TrustedProxies, get_peer, get_prefixes
from tests.fuzz.generators import bent, bent_bytes, bent_text, data, header, utf8
from tests.support.browser import BROWSER_COOKIE, ISSUER, SESSION_COOKIE

KEYRING = Keyring((b"k" * 32, b"l" * 32))
ITEMS = (*(f"realm:{realm}" for realm in REALMS), *(f"role:{role}" for role in ROLES))
FORM = b"grant_type=password&username=alice%40example.com&password=correct+horse&scope=realm%3Amain+role%3Aenduser"

# Forms


@given(bent_bytes(FORM, b""))
def test_a_form_is_read_or_an_invalid_request(body: bytes) -> None:
    try:
        form = parse_form(body, TOKEN_PARAMETERS)
    except InvalidRequest:
        return

    assert form.keys() <= TOKEN_PARAMETERS
    assert all(form.values())
    assert parse_form(urlencode(form).encode(), TOKEN_PARAMETERS) == form


@given(bent_bytes(b"scope=realm%3Amain+role%3Aenduser&x=y"))
def test_the_scope_that_a_gateway_needs_is_read_or_refused(query: bytes) -> None:
    with suppress(InsufficientScope):
        parse_needed_scope(query)


# Languages


@given(st.one_of(bent_text("de-AT;q=0.8, *;q=0"), bent_text("de en")))
def test_languages_are_read_or_ignored(text: str) -> None:
    for wanted in (parse_preferences(text), parse_ui_locales(text)):
        assert find_language(wanted, ("en", "de")) in (None, "en", "de")


# Credentials


@given(
    st.lists(st.one_of(bent_text(f"Basic {b64encode(b'web-shop:s%20x').decode()}"), header), max_size=2),
    st.dictionaries(st.sampled_from(["client_id", "client_secret"]), st.one_of(st.just("web-shop"), utf8.filter(bool))),
)
def test_client_credentials_are_read_or_refused(authorization: list[str], form: dict[str, str]) -> None:
    try:
        readings = parse_client_credentials(authorization, form)
    except (InvalidClient, InvalidRequest):
        return

    assert 1 <= len(readings) <= 2
    assert all(reading.client_id.isascii() and reading.client_id.isprintable() for reading in readings)


@given(st.lists(st.one_of(bent_text(f"Bearer {make_access_token('0a3').text}"), header), max_size=2))
def test_a_bearer_is_read_or_refused(authorization: list[str]) -> None:
    try:
        token = parse_bearer(authorization)
    except (BearerMissing, MalformedBearer, InvalidToken):
        return

    assert parse_bearer([f"Bearer {token}"]) == token


# Tokens

Parse = Callable[[str], RandomToken | None]

RANDOM: list[tuple[Parse, RandomToken]] = [
    (parse_access_token, make_access_token("0a3")),
    (parse_authorization_code, make_random_token("tsac1_", "0a3")),
    (parse_consent, make_consent("fff")),
    (parse_browser_session, make_browser_session("000")),
]


@given(st.sampled_from(RANDOM), st.data())
def test_a_random_token_has_one_spelling(kind: tuple[Parse, RandomToken], draw: st.DataObject) -> None:
    parse, made = kind
    presented = draw.draw(bent_text(*(token.text for _, token in RANDOM)))

    name = parse(presented)

    assert parse(made.text) == made
    assert is_access_token(presented) == (parse_access_token(presented) is not None)
    if name is not None:
        assert (name.text, name.shard) == (presented, presented[6:9])
        assert presented.startswith(made.text[:6])
        assert len(presented) == len(made.text)


@given(st.data(), st.integers(1, 2**32 - 1))
def test_refresh_token_has_one_valid_spelling(draw: st.DataObject, generation: int) -> None:
    signed = KEYRING.sign_refresh_token(made := make_first_refresh_token("0a3")._replace(generation=generation))
    presented = draw.draw(bent_text(signed))

    assert KEYRING.parse_refresh_token(signed) == made
    assert (KEYRING.parse_refresh_token(presented) is not None) == (presented == signed)


# Scope, PKCE, addresses


@given(st.one_of(st.lists(st.sampled_from(ITEMS), max_size=5).map(" ".join), bent_text("realm:main role:enduser")))
def test_a_scope_is_read_or_an_invalid_scope(asked: str) -> None:
    with suppress(ValueError):
        assert set(parse_required_scope(asked).split()) == set(asked.split())
    try:
        scope = parse_scope(asked)
    except InvalidScope:
        return

    assert parse_scope(str(scope)) == scope
    assert sorted(str(scope).split(" ")) == sorted(asked.split(" "))


@given(bent_text("realm:main role:enduser"))
def test_realm_of_an_invalid_scope_raises_value_error(scope: str) -> None:
    with suppress(ValueError):
        assert f"realm:{parse_realm(scope)}" in scope.split(" ")


URIS = ("https://shop.example:8443/other?keep=this", "com.example.app:/callback", "http://[::1]:9000/callback")


@given(bent_text(*URIS), utf8)
def test_registrable_uri_keeps_its_meaning_in_a_redirect(redirect_uri: str, state: str) -> None:
    mistake = find_uri_mistake(redirect_uri)
    assert find_server_mistake(redirect_uri) is not None or mistake is None
    assume(mistake is None)

    location = make_location(ReturnAddress(redirect_uri, state), "https://id.example", {"code": "c"})

    assert location.startswith(redirect_uri)
    assert location.isascii()
    assert location.isprintable()
    assert urlsplit(location)[:3] == urlsplit(redirect_uri)[:3]
    assert parse_query(location.rpartition("&state=")[2].encode(), {"iss"}).values["iss"] == "https://id.example"


@given(bent_text(*URIS), st.booleans())
def test_presented_uri_may_differ_in_the_loopback_port_only(presented: str, is_public: bool) -> None:
    secret_hash = None if is_public else "sha256:x"
    client = Client(client_id="shop", redirect_uris=URIS, client_secret_hash=secret_hash)

    if is_registered(client, presented) and presented not in URIS:
        assert is_public
        parts = urlsplit(presented)
        assert (parts.hostname, parts.path, parts.query) == ("::1", "/callback", "")


HOPS = ("203.0.113.9", "10.0.0.1:99", "[2001:db8::1]:443", "::ffff:10.0.0.2", "fe80::1%eth0", "unknown", "")


@given(
    st.lists(st.one_of(st.sampled_from(HOPS), bent_text(*HOPS)).map(lambda hop: hop.encode()), max_size=4),
    header.filter(bool),
)
async def test_forwarded_client_is_an_address_or_the_peer(hops: list[bytes], peer: str) -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)

    async def nothing(*_: Any) -> Any:
        return {}

    headers = [(b"x-forwarded-for", b", ".join(hops)), (b"x-forwarded-proto", b"".join(hops))]
    for address in (peer, "10.9.9.9"):
        scope = {"type": "http", "client": (address, 0), "headers": headers, "scheme": "http"}
        await TrustedProxies(app, [ip_network("10.0.0.0/8")])(scope, nothing, nothing)
        found = get_peer(scopes[-1])
        assert found in (address, UNKNOWN) or str(ip_address(found)) == found
        assert get_prefixes(Request(scopes[-1]))


# Cookies

ALICE = User(realm="main", username="alice@example.com", revision="r1")
BROWSERS = BrowserCookies(KEYRING, ISSUER)


def make_request(cookies: bytes, query: bytes = b"") -> Request:
    return Request(
        {"type": "http", "method": "GET", "path": "/", "headers": [(b"cookie", cookies)], "query_string": query}
    )


def set_device_cookie() -> str:
    response = Response()
    BROWSERS.set_device_cookie(make_request(b""), response, ALICE)
    return response.headers["set-cookie"].partition(";")[0]


@given(st.data())
def test_random_cookies_yield_our_values_or_nothing(draw: st.DataObject) -> None:
    session, device = make_browser_session("0a3"), set_device_cookie()
    cookies = f"{SESSION_COOKIE}={session.text}; {device}; {BROWSER_COOKIE}={'b' * 43}"
    request = make_request(draw.draw(bent(st.just(cookies.encode()), data)), draw.draw(data))

    name, secret = BROWSERS.find_session_token(request), BROWSERS.find_secret(request)
    assert name is None or parse_browser_session(name.text) == name
    assert secret is None or (len(secret) == 43 and secret.isascii())
    assert BROWSERS.get_device(request, ALICE.identity, ALICE.revision) in ("", device.partition("=")[2][:43])
    assert BROWSERS.find_notice(request) is None
    BROWSERS.set_device_cookie(request, Response(), ALICE)
