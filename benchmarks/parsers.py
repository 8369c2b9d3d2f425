"""The growth of a parser's time: eight times the input may take about eight times as long.

The text is one piece repeated up to the longest text that a client can send. The result is the growth of the time
divided by eight: linear growth gives 1, and square growth gives 8.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from joserfc.jwk import RSAKey
from starlette.requests import Request

from benchmarks.processes import SERVER_CORE, on_core
from benchmarks.results import Rows
from service.crypto.keyring import Keyring
from service.protocol.authorization import is_registered, parse_query
from service.protocol.bearer import parse_bearer
from service.protocol.client import Client
from service.protocol.client_authentication import parse_basic
from service.protocol.errors import BearerMissing, InvalidScope, OAuthError
from service.protocol.languages import find_language, parse_accept_language, parse_ui_locales
from service.protocol.parameters import MAX_FORM_BYTES, TOKEN_PARAMETERS, check_content_type, parse_form
from service.protocol.provider_responses import (
    InvalidProviderResponse,
    ProviderError,
    parse_metadata,
    parse_token_response,
)
from service.protocol.scope import parse_scope
from service.protocol.token_form import parse_access_token
from service.protocol.trace_context import parse_traceparent
from service.protocol.uri import find_server_mistake
from service.protocol.user import identify_user
from service.realms.provider.id_token import Expectation, UnknownKey, parse_keys, verify_id_token
from service.redis_client.url import parse_redis_url, without_password
from service.registry.seed_file.reader import parse_seed
from service.registry.seed_file.schema import BadSeed
from service.web.pages.cookies import BrowserCookies
from service.web.request.client_address import get_prefixes

GROWTH, SCOPES = "time of a parser for its largest input / in proportion", "a scope of 60 KB is refused"
FACTOR = 8
MIN_SECONDS = 0.002 / 24
"""The least time that counts for the small input. At three times linear growth the large one takes 2 ms."""
SEED_BYTES = 16 * 1024
SCOPE_CALLS = 20

Parse = Callable[[str], object]

_KEYRING = Keyring((b"k" * 32, b"l" * 32))
_BROWSERS = BrowserCookies(_KEYRING, is_secure=False)
_ISSUER = "https://login.example.org"
_KEYS = parse_keys({"keys": [RSAKey.generate_key(2048, {"kid": "RSA"}).as_dict(private=False)]})
_EXPECTED = Expectation(_ISSUER, "token-service", None, 1_700_000_000)
_ALICE = identify_user("main", "alice@example.com")
_CLIENT = Client(
    client_id="c",
    redirect_uris=("https://shop.example:8443/other", "com.example.app:/callback", "http://[::1]:9000/callback"),
)

_LATER_TRACEPARENT = b"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-"
"""A `traceparent` of a later version, which text of any length may follow."""

_REQUEST_PIECES = (
    *("a", "a=b&", "&", "=", "%41", "%", "+", ",", ":", ";", ".", "~", "/", "@", "[", "]", " ", "\t", "\n", '"', "\\"),
    "::",
)
_RESPONSE_PIECES = ("a", ".", "a.", "[", '{"a":', '"', "\\u0041", "1", " ")
_ADDRESS_PIECES = ("a", ":", "@", ",", "a:1,", "[", "[::1],", "%", "/", "?", "&", "db=1&", "#", "1")
_SEED_PIECES = (
    *("a", "[", "{a: ", "- ", "- a\n", "&a ", "*a ", "- &a a\n- *a\n", "? ", "a: ", "a: b\n", "'", '"', "!", "!!a "),
    *("# a\n", "\n", "|\n", "- {username: a}\n", "\\"),
)
_SEED_PREFIXES = {"seed": "", "users": "users:\n", "a user": "users:\n- ", "addresses": "clients:\n- redirect_uris:\n"}


def _make_request(cookies: bytes) -> Request:
    headers = [(b"cookie", cookies)]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers, "query_string": b""})


_REQUEST_PARSERS: dict[str, Callable[[Any], object]] = {
    "form": lambda text: parse_form(text.encode(), TOKEN_PARAMETERS),
    "query": lambda text: parse_query(text.encode()),
    "Basic": lambda text: parse_basic("Basic " + b64encode(text.encode()).decode()),
    "base64": lambda text: parse_basic("Basic " + text),
    "bearer": lambda text: parse_bearer(["Bearer " + text]),
    "scope": parse_scope,
    "access token": parse_access_token,
    "refresh token": _KEYRING.parse_refresh_token,
    "content type": check_content_type,
    "traceparent": lambda text: parse_traceparent(_LATER_TRACEPARENT + text.encode()),
    "Accept-Language": lambda text: find_language(parse_accept_language(text), ("en", "de")),
    "ui_locales": lambda text: find_language(parse_ui_locales(text), ("en", "de")),
    "server": find_server_mistake,
    "redirect_uri": lambda text: is_registered(_CLIENT, "http://[::1]:1/" + text),
    "cookies": lambda text: _BROWSERS.get_device(_make_request(b"ts_device=" + text.encode()), _ALICE, "r1"),
    "sealed": lambda text: _KEYRING.open_for_page("login form", text),
    "address": lambda text: get_prefixes(Request({"type": "http", "client": (text, 0)})),
}
_RESPONSE_PARSERS: dict[str, Parse] = {
    "ID token": lambda text: verify_id_token(text, _KEYS, _EXPECTED),
    "answer about tokens": lambda text: parse_token_response(200, text.encode()),
    "metadata": lambda text: parse_metadata(text.encode(), _ISSUER),
}
_ADDRESS_PARSERS: dict[str, Parse] = {
    "Redis address": lambda text: parse_redis_url("redis://" + text),
    "Redis address, shown": lambda text: without_password("redis://" + text),
}
_SCOPES = {
    "spaces": " " * 60_000,
    "an item and spaces": f"realm:main{' ' * 60_000}",
    "one item many times": "role:orderer " * 4_600,
}


def measure_parsers(rounds: int) -> Rows:
    with on_core(SERVER_CORE):
        return {GROWTH: _measure_growth(rounds), SCOPES: _measure_scopes(rounds)}


def _measure_growth(rounds: int) -> dict[str, list[float]]:
    """Return the growth of each parser for the piece of text with which it is greatest."""
    growth = {}
    seed_parsers = {name: _make_seed_parser(prefix) for name, prefix in _SEED_PREFIXES.items()}
    for parsers, pieces, size in (
        (_REQUEST_PARSERS, _REQUEST_PIECES, MAX_FORM_BYTES),
        (_RESPONSE_PARSERS, _RESPONSE_PIECES, MAX_FORM_BYTES),
        (_ADDRESS_PARSERS, _ADDRESS_PIECES, MAX_FORM_BYTES),
        (seed_parsers, _SEED_PIECES, SEED_BYTES),
    ):
        for name, parse in parsers.items():
            ratios = {piece: _compare(parse, piece, size // len(piece), rounds) for piece in pieces}
            worst = max(ratios, key=lambda piece: ratios[piece])
            growth[f"{name} of {worst!r}"] = [ratios[worst]]
    return growth


def _make_seed_parser(prefix: str) -> Parse:
    return lambda text: parse_seed((prefix + text).encode())


def _compare(parse: Parse, piece: str, times: int, rounds: int) -> float:
    """Return the time for the whole text, divided by eight times the time for an eighth of it."""
    small_time = min(_measure_seconds(parse, piece * (times // FACTOR)) for _ in range(rounds))
    large_time = min(_measure_seconds(parse, piece * times) for _ in range(rounds))
    return large_time / FACTOR / max(small_time, MIN_SECONDS)


def _measure_scopes(rounds: int) -> dict[str, list[float]]:
    """Return the microseconds of the fastest of many calls, for each round."""
    return {
        name: [min(_measure_seconds(parse_scope, text) for _ in range(SCOPE_CALLS)) * 1e6 for _ in range(rounds)]
        for name, text in _SCOPES.items()
    }


def _measure_seconds(parse: Parse, text: str) -> float:
    started = time.process_time()
    with suppress(
        OAuthError, BearerMissing, InvalidScope, ValueError, InvalidProviderResponse, UnknownKey, ProviderError, BadSeed
    ):
        parse(text)
    return time.process_time() - started
