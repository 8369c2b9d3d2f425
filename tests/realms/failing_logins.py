"""Logins in a browser that fail because of the identity provider."""

import io
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

import httpx2
import pytest

from tests.realms.login_steps import RegisterRealm, log_in_at_provider, log_in_through_cep
from tests.support.browser import ISSUER, SESSION_COOKIE, Browser, assert_sent_back, authorization_url, is_consent_page
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
ProviderChange: TypeAlias = Callable[[FakeProvider], None]


async def assert_healthy(register_realm: RegisterRealm, provider: FakeProvider, browser: Browser) -> None:
    """Check that the same browser can log in as soon as the provider works again."""
    provider.claims = dict(CLAIMS)
    provider.id_token_claims, provider.id_token_header = {}, {}
    provider.userinfo, provider.introspection = {}, {}
    provider.token_response, provider.metadata, provider.redirect = {}, {}, {}
    provider.sign_with(published_key())
    for path in (OPENID_METADATA, TOKEN, KEYS, USERINFO, INTROSPECT):
        provider.answer(path, None)
    await register_realm()
    assert is_consent_page(await log_in_through_cep(browser, ASK))


async def try_to_log_in(browser: Browser, provider: FakeProvider) -> httpx2.Response:
    """Log in until the first failure. The service may not even find the provider."""
    response = await browser.open(ASK)
    if not response.headers["location"].startswith(provider.url):
        return response
    return await browser.open(await log_in_at_provider(response.headers["location"]))


def assert_login_failed(response: httpx2.Response, browser: Browser, error: str) -> None:
    answer = assert_sent_back(response, error)

    assert answer.keys() == {"error", "error_description", "state", "iss"}
    assert (answer["state"], answer["iss"]) == (STATE, ISSUER)
    assert SESSION_COOKIE not in browser.cookie_values
    assert SESSION_COOKIE not in response.headers.get("set-cookie", "")


def logged_faults(json_logs: io.StringIO) -> str:
    """Return the log lines about the provider."""
    events = [json.loads(line) for line in json_logs.getvalue().splitlines()]
    return "\n".join(event["event"] for event in events if event["logger"] == "service.realms")


class Fault(NamedTuple):
    """A fault of the provider. `logged` must stand in the log, so that no test passes for another reason."""

    change_provider: ProviderChange
    logged: str
    error: str = "temporarily_unavailable"
    entry: Mapping[str, object] = {}


def fault_case(
    name: str,
    change_provider: ProviderChange,
    logged: str,
    error: str = "temporarily_unavailable",
    *,
    entry: Mapping[str, object] | None = None,
) -> object:
    return pytest.param(Fault(change_provider, logged, error, entry or {}), id=name)


AssertFault: TypeAlias = Callable[[Fault], Awaitable[None]]


def claims(**changes: object) -> ProviderChange:
    def change_provider(provider: FakeProvider) -> None:
        provider.claims |= changes

    return change_provider


def tokens_are(**changes: object) -> ProviderChange:
    def change_provider(provider: FakeProvider) -> None:
        provider.token_response = changes

    return change_provider


def answers(path: str, answer: Answer) -> ProviderChange:
    return lambda provider: provider.answer(path, answer)
