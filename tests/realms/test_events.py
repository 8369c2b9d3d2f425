"""Security events of logins at a provider: the user of a successful login, and no user for a failed one."""

from __future__ import annotations

import io

import httpx2
import pytest

from service.store.attempts import Counter
from service.store.keys import address_key
from service.worker import Worker
from tests.realms.login_steps import (
    log_in_through_cep,
    log_in_with_password,
)
from tests.support.browser import Browser
from tests.support.clients_and_users import PHONE_APP
from tests.support.events import events_of
from tests.support.fake_provider import CLAIMS, PASSWORD, USERNAME, FakeProvider

ADDRESS = "203.0.113.7"
AT_CEP = {"client_id": PHONE_APP.client_id, "realm": "cep", "address": ADDRESS}


@pytest.mark.clause("spec-6-events", "6819-5.1.3-event-log")
async def test_a_login_there_is_told_with_the_name_that_the_provider_gave(
    cep: None, browser: Browser, json_logs: io.StringIO
) -> None:
    await log_in_through_cep(browser)

    assert events_of(json_logs) == [("login_succeeded", AT_CEP | {"username": CLAIMS["sub"]})]


@pytest.mark.clause("decided-typed-names-not-recorded")
async def test_a_login_that_the_provider_denies_is_told(
    cep: None, provider: FakeProvider, browser: Browser, json_logs: io.StringIO
) -> None:
    provider.redirect = {"code": None, "error": "access_denied"}
    await log_in_through_cep(browser)

    assert events_of(json_logs) == [("login_failed", AT_CEP | {"reason": "provider_denied"})]


@pytest.mark.clause("decided-typed-names-not-recorded")
async def test_the_password_grant_there_names_nobody_who_was_only_typed(
    cep: None, http: httpx2.AsyncClient, json_logs: io.StringIO
) -> None:
    await log_in_with_password(http, USERNAME, "a wrong password")
    assert events_of(json_logs) == [("login_failed", AT_CEP | {"reason": "password_wrong"})]

    await log_in_with_password(http, USERNAME, PASSWORD)
    assert [(event, fields["username"]) for event, fields in events_of(json_logs)] == [
        ("login_succeeded", CLAIMS["sub"]),
        ("tokens_issued", CLAIMS["sub"]),
    ]


async def test_an_address_from_which_the_provider_refuses_too_much_is_told(
    cep: None, worker: Worker, http: httpx2.AsyncClient, json_logs: io.StringIO
) -> None:
    counter = Counter(address_key("refused", ADDRESS, "cep"), 100, 60_000)
    for _ in range(100):
        await worker.attempts.count([counter])
    await log_in_with_password(http, USERNAME, PASSWORD)

    assert events_of(json_logs) == [("login_throttled", AT_CEP | {"reason": "provider_spared"})]
