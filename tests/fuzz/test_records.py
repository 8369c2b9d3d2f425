"""Records that Redis gives back: of this version, or something that this code cannot judge, and then an outage."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
import redis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from service.crypto.keyring import make_access_token, make_first_refresh_token, make_random_token
from service.gateway.access_record import access_key, parse_grant
from service.redis_client.deadline import StoreUnavailable
from service.store import records
from service.store.keys import code_key, ended_key, family_key, redeemed_key
from service.store.registry.clients import CLIENTS
from service.store.registry.realms import REALMS
from service.store.registry.users import USERS
from service.store.reports.token_inspection import find_family
from service.store.sessions.codes import Codes
from service.worker import Worker
from tests.fuzz.generators import bent_bytes, data, json_values
from tests.store.sessions import DEFAULT_LIFETIMES

FAMILY = (
    b"2\n1700000000000\np\n1\ndigest\nsubject\nshop\nalice\nrealm:main role:enduser\n\n\n8000000000000\n8000000000000\n"
    b"8000000000000\n2\n0\n1:1:1\n2 0:0:600000:" + b"a" * 22 + b" 1:4688:600000:" + b"b" * 22 + b"\n"
    b"1 1:5000:600000:" + b"r" * 22 + b"\n 0:0"
)
GRANT = b"2\n1700000000000\n9700000000000\nfamily\nshop\nsubject\nalice\nrealm:main role:enduser"
CODE = b"2\n1700000000000\n9700000000000\ndigest\nsubject\nshop\nhttps://shop.example/\n\nalice\nrealm:main\n\n-"
REDEEMED = b"2\nshop\n\nfamily"
SESSION = b"2\n1700000000000\n9700000000000\ndigest\nsubject\nmain\nalice\nlogin\n\n\n1700000000000\n-"
TOMBSTONE = b"2\n1700000000000\nrevoked\n1\n1\n\n1700000000000\nshop\nsubject\nalice\nrealm:main role:enduser"
REQUEST = (
    b'{"client_id":"shop","return_address":{"redirect_uri":"https://shop.example/","state":"x"},'
    b'"scope":"role:enduser","code_challenge":null}'
)
CONSENT = b'2\n1\n2\nlogin\nsubject\n\n{"request":' + REQUEST + b',"scope":"realm:main role:enduser"}\n-'
CLIENT = (
    b'{"client_id":"shop","redirect_uris":["https://shop.example/"],"grant_types":["password"],"scope":"role:enduser"}'
)
REALM = b'{"client_id":"us","client_secret":"","issuer":"https://login.example.org"}'
USER = b'{"realm":"main","username":"alice","password_hash":"x","roles":["enduser"]}'

Parse = Callable[[Any], object]
Branding = Callable[[], Awaitable[object]]


PARSERS: dict[str, tuple[Parse, bytes]] = {
    "grant": (parse_grant, GRANT),
    "code": (records.parse_code, CODE),
    "redeemed code": (records.parse_redeemed, REDEEMED),
    "family": (records.parse_family, FAMILY),
    "tombstone": (records.parse_tombstone, TOMBSTONE),
    "consent": (records.parse_consent, CONSENT),
    "browser session": (records.parse_browser_session, SESSION),
    "client": (CLIENTS.parse, CLIENT),
    "user": (lambda record: USERS.parse((record, b"r1")), USER),
    "user's revision": (lambda revision: USERS.parse((USER, revision)), b"r1"),
}
pieces = st.one_of(data, st.just(b"\n"), json_values.map(msgspec.json.encode))


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
            REALMS.parse(some)


def test_answer_outside_text_is_an_outage() -> None:
    answers: list[Any] = [5, True, 1.5, [b"1"], {b"a": 1}, "text"]
    for parse, _ in PARSERS.values():
        for answer in answers:
            with pytest.raises(StoreUnavailable):
                parse(answer)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@example(FAMILY.replace(b"\n2 0:0", b"\n", 1))
@example(CODE.replace(b"1700000000000", b"then", 1))
@example(GRANT.replace(b"9700000000000", b"9" * 400))
@example(FAMILY.replace(b"8000000000000", b"9" * 400))
@given(st.one_of(bent_bytes(FAMILY, CODE, REDEEMED, TOMBSTONE, GRANT), pieces))
async def test_browser_session_record_is_parsed_or_an_outage(worker: Worker, store: redis.Redis, record: bytes) -> None:
    """Clients, the user's page, the console and a caching gateway read the record."""
    code, access_token = make_random_token("tsac1_", "0a3"), make_access_token("0a3")
    refresh_token = make_first_refresh_token("0a3")._replace(family_id=b"f" * 16)
    digest = refresh_token.family_digest
    codes_of_worker = Codes(worker.redis, DEFAULT_LIFETIMES)
    looks: list[tuple[str, Branding]] = [
        (family_key("0a3", digest), lambda: worker.families.find("0a3", digest)),
        (family_key("0a3", digest), lambda: worker.families.find_live(refresh_token)),
        (family_key("0a3", digest), lambda: find_family(worker.redis, "0a3", digest, 0)),
        (ended_key("0a3", digest), lambda: find_family(worker.redis, "0a3", digest, 0)),
        (code_key("0a3", code.digest), lambda: codes_of_worker.find(code)),
        (redeemed_key("0a3", code.digest), lambda: codes_of_worker.find(code)),
        (access_key("0a3", access_token.digest), lambda: worker.access_tokens.find(access_token)),
        (access_key("0a3", access_token.digest), lambda: worker.bearer.lookup(access_token.text)),
        (access_key("0a3", access_token.digest), lambda: worker.bearer.lookup(access_token.text)),
    ]
    for key, look in looks:
        store.set(key, record)
        with suppress(StoreUnavailable):
            await look()
        store.delete(key)
