"""Logins in a browser that fail at the identity provider."""

from __future__ import annotations

import io
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

import httpx2
import pytest

from tests.realms.journey import Enlist, come_back, log_in_by_way_of_cep, log_in_there
from tests.support.browser import ISSUER, Browser, ask, assert_sent_back, is_consent_page
from tests.support.fake_provider import (
    CLAIMS,
    INTROSPECT,
    KEYS,
    OPENID_METADATA,
    TOKEN,
    USERINFO,
    Answer,
    FakeProvider,
    published_key,
)

STATE = "a state of the client"


ASK = ask(scope="realm:cep role:enduser", state=STATE)


OTHER_ISSUER = "https://other.example"


CONTENDERS = 20


Bend: TypeAlias = Callable[[FakeProvider], None]


async def assert_healthy(enlist: Enlist, organisation: FakeProvider, browser: Browser) -> None:
    """As soon as the organisation is right again, the same browser gets in."""
    organisation.claims = dict(CLAIMS)
    organisation.id_token_claims, organisation.id_token_header = {}, {}
    organisation.userinfo, organisation.introspection = {}, {}
    organisation.token_response, organisation.metadata, organisation.redirect = {}, {}, {}
    organisation.sign_with(published_key())
    for path in (OPENID_METADATA, TOKEN, KEYS, USERINFO, INTROSPECT):
        organisation.answer(path, None)
    await enlist()
    assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))


async def try_to_log_in(browser: Browser, organisation: FakeProvider) -> httpx2.Response:
    """As far as it goes: the organisation may not even be found."""
    response = await browser.open(ASK)
    if not response.headers["location"].startswith(organisation.url):
        return response
    return await come_back(browser, await log_in_there(response.headers["location"]))


def assert_came_to_nothing(response: httpx2.Response, browser: Browser, error: str) -> None:
    answer = assert_sent_back(response, error)

    assert answer.keys() == {"error", "error_description", "state", "iss"}
    assert (answer["state"], answer["iss"]) == (STATE, ISSUER)
    assert "ts_session" not in browser.cookie_values
    assert "ts_session" not in response.headers.get("set-cookie", "")


def troubles_of(json_logs: io.StringIO) -> str:
    """What the log says of the organisation."""
    events = [json.loads(line) for line in json_logs.getvalue().splitlines()]
    return "\n".join(event["event"] for event in events if event["logger"] == "service.realms")


class Trouble(NamedTuple):
    """`told` is what the log must say, so that no test passes for another reason than its own."""

    bend: Bend
    told: str
    error: str = "temporarily_unavailable"
    entry: Mapping[str, object] = {}


def told(
    name: str,
    bend: Bend,
    told: str,
    error: str = "temporarily_unavailable",
    *,
    entry: Mapping[str, object] | None = None,
) -> object:
    return pytest.param(Trouble(bend, told, error, entry or {}), id=name)


AssertTrouble: TypeAlias = Callable[[Trouble], Awaitable[None]]


def claims(**changes: object) -> Bend:
    def bend(organisation: FakeProvider) -> None:
        organisation.claims |= changes

    return bend


def tokens_are(**changes: object) -> Bend:
    def bend(organisation: FakeProvider) -> None:
        organisation.token_response = changes

    return bend


def answers(path: str, answer: Answer) -> Bend:
    return lambda organisation: organisation.answer(path, answer)
