"""Logins in a browser that fail because of the identity provider."""

from __future__ import annotations

import io
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

import httpx2
import pytest

from tests.realms.journey import Enlist, come_back, log_in_by_way_of_cep, log_in_there
from tests.support.browser import ISSUER, Browser, assert_sent_back, authorization_url, is_consent_page
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


ASK = authorization_url(scope="realm:cep role:enduser", state=STATE)


OTHER_ISSUER = "https://other.example"


CONTENDERS = 20


Bend: TypeAlias = Callable[[FakeProvider], None]


async def assert_healthy(enlist: Enlist, provider: FakeProvider, browser: Browser) -> None:
    """Check that the same browser can log in as soon as the provider works again."""
    provider.claims = dict(CLAIMS)
    provider.id_token_claims, provider.id_token_header = {}, {}
    provider.userinfo, provider.introspection = {}, {}
    provider.token_response, provider.metadata, provider.redirect = {}, {}, {}
    provider.sign_with(published_key())
    for path in (OPENID_METADATA, TOKEN, KEYS, USERINFO, INTROSPECT):
        provider.answer(path, None)
    await enlist()
    assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))


async def try_to_log_in(browser: Browser, provider: FakeProvider) -> httpx2.Response:
    """Log in until the first failure. The service may not even find the provider."""
    response = await browser.open(ASK)
    if not response.headers["location"].startswith(provider.url):
        return response
    return await come_back(browser, await log_in_there(response.headers["location"]))


def assert_came_to_nothing(response: httpx2.Response, browser: Browser, error: str) -> None:
    answer = assert_sent_back(response, error)

    assert answer.keys() == {"error", "error_description", "state", "iss"}
    assert (answer["state"], answer["iss"]) == (STATE, ISSUER)
    assert "ts_session" not in browser.cookie_values
    assert "ts_session" not in response.headers.get("set-cookie", "")


def troubles_of(json_logs: io.StringIO) -> str:
    """Return the log lines about the provider."""
    events = [json.loads(line) for line in json_logs.getvalue().splitlines()]
    return "\n".join(event["event"] for event in events if event["logger"] == "service.realms")


class Trouble(NamedTuple):
    """A fault of the provider. `logged` must stand in the log, so that no test passes for another reason."""

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
    def bend(provider: FakeProvider) -> None:
        provider.claims |= changes

    return bend


def tokens_are(**changes: object) -> Bend:
    def bend(provider: FakeProvider) -> None:
        provider.token_response = changes

    return bend


def answers(path: str, answer: Answer) -> Bend:
    return lambda provider: provider.answer(path, answer)
