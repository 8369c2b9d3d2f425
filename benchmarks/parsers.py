"""The growth of a parser's time: with eight times the input it may take about eight times as long.

Each parser gets one piece of text again and again, up to the longest text that a caller can send. Square growth would
take 64 times as long, and is shown as 8.
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
from service.protocol.parameters import MAX_FORM_BYTES, TOKEN_PARAMETERS, check_content_type, parse_form
from service.protocol.provider_responses import (
    InvalidProviderResponse,
    ProviderError,
    parse_metadata,
    parse_token_response,
)
from service.protocol.scope import parse_scope
from service.protocol.token_form import parse_access_token
from service.protocol.uri import find_server_mistake
from service.protocol.user import identify_user
from service.realms.provider.id_token import Expectation, UnknownKey, parse_keys, verify_id_token
from service.redis_client.url import parse_redis_url, without_password
from service.registry.seed_file.reader import parse_seed
from service.registry.seed_file.schema import BadSeed
from service.web.pages.cookies import BrowserCookies
from service.web.request.client_address import get_prefixes

GROWTH, SCOPES = "time of a parser for its largest input / in proportion", "a scope of 60 KB is refused"
TIMES = 8
QUICK_SECONDS = 0.002 / 24
"""A shorter time for the small input counts as this. Three times its proportion is 2 ms, which is harmless."""
SEED_BYTES = 16 * 1024
SCOPE_TURNS = 20

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

_OF_REQUESTS = (
    *("a", "a=b&", "&", "=", "%41", "%", "+", ",", ":", ";", ".", "~", "/", "@", "[", "]", " ", "\t", "\n", '"', "\\"),
    "::",
)
_OF_ANSWERS = ("a", ".", "a.", "[", '{"a":', '"', "\\u0041", "1", " ")
_OF_ADDRESSES = ("a", ":", "@", ",", "a:1,", "[", "[::1],", "%", "/", "?", "&", "db=1&", "#", "1")
_OF_SEEDS = (
    *("a", "[", "{a: ", "- ", "- a\n", "&a ", "*a ", "- &a a\n- *a\n", "? ", "a: ", "a: b\n", "'", '"', "!", "!!a "),
    *("# a\n", "\n", "|\n", "- {username: a}\n", "\\"),
)
_HEADS_OF_SEEDS = {"seed": "", "users": "users:\n", "a user": "users:\n- ", "addresses": "clients:\n- redirect_uris:\n"}


def _make_request(cookies: bytes) -> Request:
    headers = [(b"cookie", cookies)]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers, "query_string": b""})


_PARSERS_OF_REQUESTS: dict[str, Callable[[Any], object]] = {
    "form": lambda some: parse_form(some.encode(), TOKEN_PARAMETERS),
    "query": lambda some: parse_query(some.encode()),
    "Basic": lambda some: parse_basic("Basic " + b64encode(some.encode()).decode()),
    "base64": lambda some: parse_basic("Basic " + some),
    "bearer": lambda some: parse_bearer(["Bearer " + some]),
    "scope": parse_scope,
    "access token": parse_access_token,
    "refresh token": _KEYRING.parse_refresh_token,
    "content type": check_content_type,
    "server": find_server_mistake,
    "redirect_uri": lambda some: is_registered(_CLIENT, "http://[::1]:1/" + some),
    "cookies": lambda some: _BROWSERS.get_device(_make_request(b"ts_device=" + some.encode()), _ALICE, "r1"),
    "sealed": lambda some: _KEYRING.open_for_page("login form", some),
    "address": lambda some: get_prefixes(Request({"type": "http", "client": (some, 0)})),
}
_PARSERS_OF_ANSWERS: dict[str, Parse] = {
    "ID token": lambda some: verify_id_token(some, _KEYS, _EXPECTED),
    "answer about tokens": lambda some: parse_token_response(200, some.encode()),
    "metadata": lambda some: parse_metadata(some.encode(), _ISSUER),
}
_PARSERS_OF_ADDRESSES: dict[str, Parse] = {
    "Redis address": lambda some: parse_redis_url("redis://" + some),
    "Redis address, shown": lambda some: without_password("redis://" + some),
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
    """Return, for each parser, the growth with the piece of text that has the greatest one."""
    growth = {}
    of_seeds = {name: _parse_behind(head) for name, head in _HEADS_OF_SEEDS.items()}
    for parsers, units, size in (
        (_PARSERS_OF_REQUESTS, _OF_REQUESTS, MAX_FORM_BYTES),
        (_PARSERS_OF_ANSWERS, _OF_ANSWERS, MAX_FORM_BYTES),
        (_PARSERS_OF_ADDRESSES, _OF_ADDRESSES, MAX_FORM_BYTES),
        (of_seeds, _OF_SEEDS, SEED_BYTES),
    ):
        for name, parse in parsers.items():
            told = {unit: _compare(parse, unit, size // len(unit), rounds) for unit in units}
            worst = max(told, key=lambda unit: told[unit])
            growth[f"{name} of {worst!r}"] = [told[worst]]
    return growth


def _parse_behind(head: str) -> Parse:
    return lambda some: parse_seed((head + some).encode())


def _compare(parse: Parse, unit: str, times: int, rounds: int) -> float:
    """Return how often the time for the whole is that for an eighth, as a multiple of eight."""
    little = min(_take_time(parse, unit * (times // TIMES)) for _ in range(rounds))
    much = min(_take_time(parse, unit * times) for _ in range(rounds))
    return much / TIMES / max(little, QUICK_SECONDS)


def _measure_scopes(rounds: int) -> dict[str, list[float]]:
    """Microseconds, the least of many calls in each round."""
    return {
        name: [min(_take_time(parse_scope, text) for _ in range(SCOPE_TURNS)) * 1e6 for _ in range(rounds)]
        for name, text in _SCOPES.items()
    }


def _take_time(parse: Parse, some: str) -> float:
    started = time.process_time()
    with suppress(
        OAuthError, BearerMissing, InvalidScope, ValueError, InvalidProviderResponse, UnknownKey, ProviderError, BadSeed
    ):
        parse(some)
    return time.process_time() - started
