"""Changes of realms, clients and providers during a login, and a provider that keeps failing."""

from __future__ import annotations

import httpx2
import pytest
import redis

from service.store.keys import registry_key
from service.worker import Worker
from tests.realms.failing_logins import (
    ASK,
    CONTENDERS,
    OTHER_ISSUER,
    ProviderChange,
    answers,
    assert_healthy,
    assert_login_failed,
    claims,
)
from tests.realms.login_steps import RegisterRealm, log_in_at_provider, log_in_through_cep, start_login
from tests.support.browser import (
    Browser,
    Page,
    assert_refused,
    authorization_url,
    is_consent_page,
    page_text,
    register,
)
from tests.support.fake_provider import TOKEN, FakeProvider, Reply, running_provider
from tests.support.invalidations import await_invalidations
from tests.support.loop_time import LoopTime

pytestmark = pytest.mark.usefixtures("no_secret_leaks")


@pytest.mark.clause("decided-external-follows-the-record")
@pytest.mark.parametrize("names_itself", [True, False])
async def test_a_realm_that_another_provider_has_now(
    provider: FakeProvider,
    browser: Browser,
    register_realm: RegisterRealm,
    names_itself: bool,
) -> None:
    """The code is not sent to the other provider, with or without an `iss` in the redirect."""
    if not names_itself:
        provider.redirect = {"iss": None}
    await register_realm()
    path = await log_in_at_provider(await start_login(browser, ASK))
    async with running_provider() as elsewhere:
        elsewhere.metadata = {"authorization_response_iss_parameter_supported": names_itself}
        await register_realm(issuer=elsewhere.url)
        assert_login_failed(await browser.open(path), browser, "temporarily_unavailable")
        assert elsewhere.calls(TOKEN) == []

    provider.redirect = {}
    await assert_healthy(register_realm, provider, browser)


@pytest.mark.clause("6749-4.1.2.1-error")
async def test_a_realm_that_was_removed(
    provider: FakeProvider,
    browser: Browser,
    cep: None,
    worker: Worker,
    store: redis.Redis,
    loop_time: LoopTime,
) -> None:
    path = await log_in_at_provider(await start_login(browser, ASK))
    store.rename(registry_key("realm", "cep"), registry_key("realm", "away"))
    await await_invalidations(worker)
    assert_login_failed(await browser.open(path), browser, "invalid_scope")
    assert provider.calls(TOKEN) == []
    assert_login_failed(await browser.open(ASK), browser, "invalid_scope")

    store.rename(registry_key("realm", "away"), registry_key("realm", "cep"))
    assert is_consent_page(await log_in_through_cep(browser, ASK))


async def test_a_login_of_a_realm_that_was_removed_serves_nobody(
    browser: Browser, cep: None, worker: Worker, store: redis.Redis
) -> None:
    page = await log_in_through_cep(browser, ASK)
    store.delete(registry_key("realm", "cep"))
    await await_invalidations(worker)

    assert_refused(await browser.allow(page), 403, "signed_out")
    assert page_text("sessions.sign_out_heading") not in Page(await browser.open("/sessions/")).text


@pytest.mark.clause("6749-4.1.2.1-no-redirect")
async def test_a_client_whose_address_was_taken_away(
    provider: FakeProvider, browser: Browser, cep: None, worker: Worker
) -> None:
    scope = "realm:cep role:enduser"
    app = await register(worker, "cep-only", scope=scope, default_scope=scope)
    path = await log_in_at_provider(await start_login(browser, authorization_url(app)))
    await register(worker, "cep-only", "https://elsewhere.example/callback", scope=scope, default_scope=scope)
    assert_refused_without_redirect(await browser.open(path))

    assert provider.calls(TOKEN) == []
    assert "ts_session" not in browser.cookie_values


def assert_refused_without_redirect(response: httpx2.Response) -> None:
    assert (response.status_code, "location" in response.headers) == (400, False)
    assert page_text("refused.unverified_heading") in Page(response).text


@pytest.mark.clause("decided-external-limits")
@pytest.mark.parametrize(
    ("change_provider", "error"),
    [
        pytest.param(claims(sub="z" * 256), "temporarily_unavailable", id="a name that is too long"),
        pytest.param(answers(TOKEN, Reply(403, b"<html>")), "temporarily_unavailable", id="refused by a firewall"),
        pytest.param(answers(TOKEN, Reply(400, {"error": "invalid_grant"})), "access_denied", id="an invented code"),
        pytest.param(
            lambda it: it.redirect.update(iss=OTHER_ISSUER), "temporarily_unavailable", id="an invented issuer"
        ),
    ],
)
async def test_one_person_cannot_shut_the_provider_out_for_all(
    provider: FakeProvider, browser: Browser, register_realm: RegisterRealm, change_provider: ProviderChange, error: str
) -> None:
    """Neither the user name at the provider nor the user's input can open the circuit for all users."""
    await register_realm()
    change_provider(provider)
    for _ in range(CONTENDERS + 5):
        assert_login_failed(await log_in_through_cep(browser, ASK), browser, error)

    await assert_healthy(register_realm, provider, browser)
