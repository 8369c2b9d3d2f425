"""Callbacks that bring no login, or the login of another browser."""

import asyncio
import io

import pytest
import redis

from tests.conftest import Clock, MakeSettings, serving
from tests.realms.failing_logins import (
    ASK,
    CONTENDERS,
    OTHER_ISSUER,
    Fault,
    ProviderChange,
    assert_healthy,
    assert_login_failed,
    fault_case,
    logged_faults,
    try_to_log_in,
)
from tests.realms.login_steps import (
    RegisterRealm,
    log_in_at_provider,
    log_in_through_cep,
    query_of,
    start_login,
    with_query,
)
from tests.support.browser import (
    SESSION_COOKIE,
    Browser,
    assert_refused,
    assert_sent_back,
    authorization_response,
    is_consent_page,
)
from tests.support.fake_provider import TOKEN, FakeProvider

pytestmark = pytest.mark.usefixtures("no_secret_leaks")

TEN_MINUTES = 600
EXPIRED = (400, "expired")
OTHER_BROWSER = (403, "astray")
FORGED = (403, "forged")


def redirects(**changes: object) -> ProviderChange:
    def change_provider(provider: FakeProvider) -> None:
        provider.redirect = changes

    return change_provider


@pytest.mark.clause("6749-4.1.2.1-error", "6749-4.1.2.1-state-returned", "9207-2-iss-in-error-redirect")
@pytest.mark.clause("9207-2.4-iss-checked", "decided-external-denial", "decided-external-realm-down")
@pytest.mark.parametrize(
    "fault",
    [
        fault_case("a denial", redirects(code=None, error="access_denied"), "", "access_denied"),
        fault_case("another issuer", redirects(iss=OTHER_ISSUER), "from another issuer"),
    ],
)
async def test_a_callback_without_a_code_is_an_error(
    fault: Fault, provider: FakeProvider, browser: Browser, register_realm: RegisterRealm, json_logs: io.StringIO
) -> None:
    await register_realm()
    fault.change_provider(provider)
    assert_login_failed(await try_to_log_in(browser, provider), browser, fault.error)

    assert provider.calls(TOKEN) == []
    assert fault.logged in logged_faults(json_logs)
    await assert_healthy(register_realm, provider, browser)


@pytest.mark.clause("6749-4.1.2.1-no-redirect", "6749-10.12-csrf-as-a-client")
@pytest.mark.parametrize("state", [None, "A" * 400, "tspl1_000" + "A" * 44], ids=["none", "unknown", "of another kind"])
async def test_unknown_state_is_refused(provider: FakeProvider, browser: Browser, cep: None, state: str | None) -> None:
    path = await log_in_at_provider(await start_login(browser, ASK))
    assert_refused(await browser.open(with_query(path, state=state)), *EXPIRED)

    assert provider.calls(TOKEN) == []
    assert is_consent_page(await browser.open(path))


@pytest.mark.clause("6749-10.12-csrf", "6749-10.12-csrf-as-a-client", "decided-external-state")
@pytest.mark.parametrize("has_cookie", [True, False])
async def test_foreign_state_is_refused_and_stays_usable(
    provider: FakeProvider, browser: Browser, cep: None, has_cookie: bool
) -> None:
    other = Browser(browser.http)
    if has_cookie:
        await start_login(other, ASK)
    path = await log_in_at_provider(await start_login(browser, ASK))
    assert_refused(await other.open(path), *OTHER_BROWSER)

    assert provider.calls(TOKEN) == []
    assert SESSION_COOKIE not in other.cookie_values
    assert is_consent_page(await browser.open(path))


@pytest.mark.clause("6749-10.12-csrf")
async def test_mixed_state_and_code_are_refused(provider: FakeProvider, browser: Browser, cep: None) -> None:
    """An attacker makes a user's browser open a callback with the attacker's own code."""
    stranger = Browser(browser.http)
    code = query_of(await log_in_at_provider(await start_login(stranger, ASK)))["code"]
    path = await log_in_at_provider(await start_login(browser, ASK))

    assert_login_failed(await browser.open(with_query(path, code=code)), browser, "access_denied")


async def test_image_and_head_requests_do_not_consume_a_callback(
    provider: FakeProvider, browser: Browser, cep: None
) -> None:
    path = await log_in_at_provider(await start_login(browser, ASK))
    assert_refused(await browser.open(path, **{"Sec-Fetch-Dest": "image"}), *FORGED)
    assert (await browser.open(path, method="HEAD")).status_code == 403

    assert provider.calls(TOKEN) == []
    assert is_consent_page(await browser.open(path, **{"Sec-Fetch-Dest": "document"}))


@pytest.mark.clause("decided-external-limits")
async def test_invented_codes_are_throttled(
    make_settings: MakeSettings, clock: Clock, provider: FakeProvider, cep: None
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="3/minute"), clock) as http:
        browser = Browser(http)
        errors = []
        for _ in range(5):
            path = with_query(await log_in_at_provider(await start_login(browser, ASK)), code="made-up")
            errors.append(authorization_response(await browser.open(path))["error"])

        assert errors == 3 * ["access_denied"] + 2 * ["temporarily_unavailable"]
        assert len(provider.calls(TOKEN)) == 3
        clock.advance(60)
        assert is_consent_page(await log_in_through_cep(browser, ASK))


@pytest.mark.clause("decided-external-isolated")
async def test_cancelled_logins_free_their_places(
    make_settings: MakeSettings, clock: Clock, provider: FakeProvider, cep: None
) -> None:
    """Cancelled logins do not throttle the other users of an address."""
    async with serving(make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="1/minute"), clock) as http:
        provider.redirect = {"code": None, "error": "access_denied"}
        for _ in range(3):
            assert_sent_back(await log_in_through_cep(Browser(http), ASK), "access_denied")
        provider.redirect = {}

        assert is_consent_page(await log_in_through_cep(Browser(http), ASK))


@pytest.mark.clause("decided-external-state")
@pytest.mark.parametrize("is_right", [True, False])
async def test_a_callback_works_once(provider: FakeProvider, browser: Browser, cep: None, is_right: bool) -> None:
    """A callback also works only once after a failure, so a state serves for one code."""
    provider.token_response = {} if is_right else {"token_type": "mac"}
    path = await log_in_at_provider(await start_login(browser, ASK))
    response = await browser.open(path)

    assert is_consent_page(response) is is_right
    for again in (path, with_query(path, code="another"), with_query(path, code=None, error="access_denied")):
        assert_refused(await browser.open(again), *EXPIRED)
    assert len(provider.calls(TOKEN)) == 1


@pytest.mark.clause("decided-external-state")
async def test_one_of_many_callbacks_with_one_state_succeeds(
    provider: FakeProvider, browser: Browser, cep: None
) -> None:
    path = await log_in_at_provider(await start_login(browser, ASK))
    responses = await asyncio.gather(*(browser.open(path) for _ in range(CONTENDERS)))

    assert sorted(response.status_code for response in responses) == [200] + [400] * (CONTENDERS - 1)
    assert [is_consent_page(response) for response in responses].count(True) == 1
    for response in responses:
        if response.status_code == 400:
            assert_refused(response, *EXPIRED)
    assert len(provider.calls(TOKEN)) == 1
    assert is_consent_page(await browser.open(ASK))


@pytest.mark.clause("decided-i6-pending-login-expires", "decided-external-state")
async def test_login_expires_after_ten_minutes(
    provider: FakeProvider, browser: Browser, cep: None, clock: Clock, store: redis.Redis
) -> None:
    path = await log_in_at_provider(await start_login(browser, ASK))
    late = await log_in_at_provider(await start_login(browser, ASK))
    clock.advance(TEN_MINUTES - 10)
    assert is_consent_page(await browser.open(path))
    assert [int(store.pttl(key)) <= 10_000 for key in store.scan_iter("external:*")] == [True]
    calls_before = len(provider.calls(TOKEN))
    clock.advance(11)

    assert list(store.scan_iter("external:*")) == []
    for gone in (path, late):
        assert_refused(await browser.open(gone), *EXPIRED)
    assert len(provider.calls(TOKEN)) == calls_before
