"""The flow from the application to the service and back: allowing, denying, and double clicks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
import redis
from playwright.async_api import Page, expect

from service.worker import Worker
from tests.pages.accessibility import END_OF_ANIMATIONS
from tests.pages.application import Application
from tests.pages.browser import DESKTOP, NO_JAVASCRIPT, PHONE, Device
from tests.pages.conftest import OpenPage
from tests.pages.deployment import SHOP
from tests.pages.steps import (
    allow,
    button,
    expect_consent,
    expect_refusal,
    find_middle,
    log_in,
    open_consent_page,
    register_person,
    set_login_cookies,
)
from tests.support.browser import authorization_url, page_text, register
from tests.support.clients_and_users import tokens_of
from tests.support.servers import ServiceProcess

STATE = "a state & more = ä"


@pytest.fixture
def request_address(application: Application) -> str:
    return authorization_url(SHOP, application.callback, scope="realm:main role:enduser role:organisation", state=STATE)


@pytest.fixture
async def consent_page(page: Page, worker: Worker, request_address: str) -> Page:
    """Alice at the consent page, with a login of some time ago."""
    await set_login_cookies(page, worker)
    await page.goto(request_address)
    await expect_consent(page)
    return page


def codes_at(application: Application) -> set[str]:
    """Return all codes that the application received."""
    return {visit.query["code"] for visit in application.visits if "code" in visit.query}


def count_codes(store: redis.Redis) -> int:
    return sum(1 for _ in store.scan_iter("code:*"))


@pytest.mark.clause("spec-4.1-consent", "spec-4.1-state", "6749-4.1.2-state-returned", "spec-4.1-login-and-consent")
@pytest.mark.parametrize("device", [DESKTOP, pytest.param(PHONE, marks=pytest.mark.long), NO_JAVASCRIPT])
async def test_allowed_consent_gives_tokens(
    open_page: OpenPage, application: Application, http: httpx2.AsyncClient, request_address: str, device: Device
) -> None:
    page = await open_page(device)
    await open_consent_page(page, request_address)
    for role in ("enduser", "organisation"):
        await expect(page.get_by_text(page_text(f"role.{role}"), exact=True)).to_be_visible()
    await allow(page)

    visit = await application.await_callback(page)
    assert visit.method == "GET"
    assert visit.query.keys() == {"code", "state", "iss"}
    assert visit.query["state"] == STATE
    assert "referer" not in visit.headers
    tokens = tokens_of(await SHOP.exchange(http, visit.query["code"], application.callback))
    assert tokens["scope"] == "realm:main role:enduser role:organisation"


async def test_going_back_after_an_answer_explains_itself(
    page: Page, application: Application, store: redis.Redis, request_address: str
) -> None:
    await open_consent_page(page, request_address)
    await allow(page)
    await application.await_callback(page)

    await page.go_back()
    await expect_refusal(page, "answered")
    await page.reload()
    await expect_refusal(page, "answered")
    await page.go_forward()
    await application.await_callback(page)
    assert len(codes_at(application)) == count_codes(store) == 1


@pytest.mark.clause("6749-4.1.2-code-in-redirect")
async def test_a_double_click_on_allow_makes_one_code(
    consent_page: Page, application: Application, http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    await button(consent_page, "consent.allow").dblclick()

    await application.await_callback(consent_page)
    assert count_codes(store) == 1
    (code,) = codes_at(application)
    tokens_of(await SHOP.exchange(http, code, application.callback))


@asynccontextmanager
async def held_animations(page: Page) -> AsyncIterator[None]:
    """Stop the clock of all animations of a tab, also those of later documents."""
    session = await page.context.new_cdp_session(page)
    await session.send("Animation.enable")
    await session.send("Animation.setPlaybackRate", {"playbackRate": 0})
    yield
    await session.send("Animation.setPlaybackRate", {"playbackRate": 1})
    await session.detach()


async def assert_unanswered(page: Page, application: Application) -> None:
    await page.evaluate("new Promise(requestAnimationFrame)")
    await expect_consent(page)
    assert not application.visits


async def test_a_click_meant_for_the_page_before_answers_nothing(
    page: Page, worker: Worker, application: Application, request_address: str
) -> None:
    """The second click of a double click is ignored while the page is new. The keyboard works at once."""
    await set_login_cookies(page, worker)
    await page.mouse.move(1, 1)
    async with held_animations(page):
        await page.goto(request_address)
        answer = button(page, "consent.allow")
        await page.mouse.click(*await find_middle(answer))
        await assert_unanswered(page, application)

        await answer.press("Enter")
        await application.await_callback(page)
    assert len(codes_at(application)) == 1


@pytest.mark.clause("decided-consent-ignores-double-click")
async def test_consent_buttons_wait_after_a_pointer_enters(consent_page: Page, application: Application) -> None:
    middle = await find_middle(button(consent_page, "consent.allow"))
    for _ in range(2):
        await consent_page.evaluate(END_OF_ANIMATIONS)
        async with held_animations(consent_page):
            await consent_page.mouse.click(*middle, click_count=2)
            await assert_unanswered(consent_page, application)
        await consent_page.evaluate(END_OF_ANIMATIONS)
        await consent_page.mouse.move(-10, -10)

    await consent_page.mouse.move(*middle)
    await consent_page.evaluate(END_OF_ANIMATIONS)
    await consent_page.mouse.click(*middle)
    await application.await_callback(consent_page)


@pytest.mark.clause("decided-consent-ignores-double-click")
async def test_the_first_tap_on_a_phone_answers(
    open_page: OpenPage, worker: Worker, application: Application, request_address: str
) -> None:
    page = await open_page(PHONE)
    await set_login_cookies(page, worker)
    await page.goto(request_address)
    middle = await find_middle(button(page, "consent.allow"))
    await page.evaluate(END_OF_ANIMATIONS)
    await page.touchscreen.tap(*middle)
    await application.await_callback(page)


async def test_an_app_on_a_phone_is_answered_at_a_scheme_of_its_own(
    page: Page, worker: Worker, service: ServiceProcess, http: httpx2.AsyncClient
) -> None:
    """No such app is installed here, so Chromium stops when it knows the address."""
    callback = "com.example.app:/callback"
    native = await register(worker, "native", callback, client_name="Native App")
    await page.goto(authorization_url(native, callback, state="s"))
    await log_in(page)
    await expect_consent(page, "Native App")
    async with page.expect_event("requestfailed", lambda request: request.url.startswith(callback)) as gone:
        await allow(page)

    answer = httpx2.URL((await gone.value).url).params
    assert (answer["state"], answer["iss"]) == ("s", service.url)
    tokens_of(await native.exchange(http, answer["code"], callback))


@pytest.mark.clause("decided-form-policy")
@pytest.mark.parametrize("answer", ["consent.allow", "consent.deny"])
async def test_the_callback_may_go_on_to_an_app(
    page: Page, application: Application, request_address: str, answer: str
) -> None:
    """Chromium checks each redirect after a form against the form-action policy of the form's page."""
    application.redirect("/callback", f"{application.other_site}/next")
    application.redirect("/next", "claude-like://done")
    await open_consent_page(page, request_address)
    async with page.expect_event("requestfailed", lambda request: request.url == "claude-like://done"):
        await button(page, answer).click()
    assert len(codes_at(application)) == (answer == "consent.allow")


async def test_an_error_at_the_login_may_go_on_to_an_app(
    page: Page, worker: Worker, application: Application, request_address: str
) -> None:
    person = await register_person(worker, "roleless@example.com", roles=())
    application.redirect("/callback", "claude-like://done")
    await page.goto(request_address)
    async with page.expect_event("requestfailed", lambda request: request.url == "claude-like://done"):
        await log_in(page, person)
    assert application.visits[-1].query["error"] == "access_denied"
