"""Records that Redis gives back: of this version, or something that this code cannot judge, and then an outage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
import redis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from service.app import Parts
from service.credentials import make_first_refresh_token
from service.store import browser_sessions, codes, consents, registry, sweeps
from service.store.access_tokens import parse_grant
from service.store.deadline import StoreUnavailable
from service.store.inspection import TokenInspection
from service.store.keys import access_key, code_key, ended_key, family_key, redeemed_key
from service.tokens import make_access_token, make_browser_session, make_random_token
from tests.fuzz.material import bent_bytes, data, json_values
from tests.store.sessions import DEFAULT_LIFETIMES

FAMILY = (
    b"1\n2\n1700000000000\n9700000000000\npassword\n1\nsubject\nshop\nalice\n"
    b"realm:main role:enduser\n1\n1:1700000001000\n\nd:1"
)
GRANT = b"1\n1700000000000\n9700000000000\nfamily\nshop\nsubject\nalice\nrealm:main role:enduser"
CODE = b"1\n1700000000000\n9700000000000\nsubject\nshop\nhttps://shop.example/\n\nalice\nrealm:main role:enduser"
REDEEMED = b"1\nshop\n\nfamily"
SESSION = b"2\n1700000000000\n9700000000000\nsubject\nmain\nalice\nlogin\n"
TOMBSTONE = b"1\n1700000000000\nrevoked\n1\n1\n\n1700000000000\nshop\nsubject\nalice\nrealm:main role:enduser"
REQUEST = (
    b'{"client_id":"shop","return_address":{"redirect_uri":"https://shop.example/","state":"x"},'
    b'"scope":"role:enduser","code_challenge":null}'
)
CONSENT = b'1\n1\n2\nlogin\nsubject\n\n{"request":' + REQUEST + b',"scope":"realm:main role:enduser"}'
CLIENT = (
    b'{"client_id":"shop","redirect_uris":["https://shop.example/"],"grant_types":["password"],"scope":"role:enduser"}'
)
REALM = b'{"client_id":"us","client_secret":"","issuer":"https://login.example.org"}'
USER = b'{"realm":"main","username":"alice","password_hash":"x","roles":["enduser"]}'

Parse = Callable[[bytes], object]
Look = Callable[[], Awaitable[object]]

PARSERS: dict[str, tuple[Parse, bytes]] = {
    "grant": (parse_grant, GRANT),
    "code": (codes._parse_code, CODE),
    "redeemed code": (codes.parse_redeemed, REDEEMED),
    "code in a sweep": (sweeps._parse_code, CODE),
    "family in a sweep": (sweeps._parse_family, FAMILY),
    "consent": (consents._parse_consent, CONSENT),
    "browser session": (lambda record: browser_sessions._parse_session(make_browser_session("0a3"), record), SESSION),
    "client": (registry._parse_client, CLIENT),
    "user": (lambda record: registry._parse_user((record, b"r1")), USER),
    "user's revision": (lambda revision: registry._parse_user((USER, revision)), b"r1"),
}
pieces = st.one_of(data, st.just(b"\n"), json_values.map(msgspec.json.encode))


@pytest.mark.fuzzes(
    "access_tokens.parse_grant",
    "codes._parse_code",
    "codes.parse_redeemed",
    "sweeps._parse_code",
    "sweeps._parse_family",
    "consents._parse_consent",
    "browser_sessions._parse_session",
    "registry._parse_client",
    "registry._parse_realm",
    "registry._parse_user",
)
@pytest.mark.parametrize("kind", PARSERS)
@example(b"")
@example(b"\xff")
@example(b"[" * 100_000)
@given(st.one_of(bent_bytes(*(good for _, good in PARSERS.values())), pieces))
def test_a_record_is_read_or_an_outage(kind: str, record: bytes) -> None:
    parse, good = PARSERS[kind]

    assert parse(good)
    for some in (record, good.replace(b"shop", record), good[: len(record)] + record):
        with suppress(StoreUnavailable):
            parse(some)
        with suppress(StoreUnavailable):
            registry._parse_realm(some)


@pytest.mark.parametrize("answer", [5, True, 1.5, [b"1"], {b"a": 1}, "text"])
@pytest.mark.parametrize("kind", PARSERS)
def test_an_answer_that_is_no_text_is_an_outage(kind: str, answer: Any) -> None:
    with pytest.raises(StoreUnavailable):
        PARSERS[kind][0](answer)


@pytest.mark.fuzzes(
    "families._parse_view", "inspection._parse_family", "inspection._parse_code", "inspection._parse_tombstone"
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(FAMILY.replace(b"1\n2\n", b"1\n\n", 1))
@example(CODE.replace(b"1700000000000", b"then", 1))
@example(GRANT.replace(b"9700000000000", b"9" * 400))
@example(FAMILY.replace(b"9700000000000", b"9" * 400))
@given(st.one_of(bent_bytes(FAMILY, CODE, REDEEMED, TOMBSTONE, GRANT), pieces))
async def test_whatever_stands_in_the_place_of_a_session_is_read_or_an_outage(
    parts: Parts, store: redis.Redis, record: bytes
) -> None:
    """For a client, for the user's page, for the console, and for a gateway that may remember it."""
    code, access_token = make_random_token("tsac1_", "0a3"), make_access_token("0a3")
    refresh_token = make_first_refresh_token("0a3")._replace(family_id=b"f" * 16)
    digest, inspection = refresh_token.family_digest, TokenInspection(parts.connection, DEFAULT_LIFETIMES)
    looks: list[tuple[str, Look]] = [
        (family_key("0a3", digest), lambda: parts.families.find("0a3", digest)),
        (family_key("0a3", digest), lambda: parts.families.find_live(refresh_token)),
        (family_key("0a3", digest), lambda: inspection.inspect_refresh_token(refresh_token)),
        (ended_key("0a3", digest), lambda: inspection.inspect_refresh_token(refresh_token)),
        (code_key("0a3", code.digest), lambda: inspection.inspect_code(code)),
        (redeemed_key("0a3", code.digest), lambda: inspection.inspect_code(code)),
        (access_key("0a3", access_token.digest), lambda: inspection.inspect_access_token(access_token)),
        (access_key("0a3", access_token.digest), lambda: parts.bearer.lookup(access_token.text)),
        (access_key("0a3", access_token.digest), lambda: parts.bearer.lookup(access_token.text)),
    ]
    for key, look in looks:
        store.set(key, record)
        with suppress(StoreUnavailable):
            await look()
        store.delete(key)
