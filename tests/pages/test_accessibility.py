"""Accessibility of every page in every state: for screen readers, dark mode, small screens, touch and keyboards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx2
import pytest
import redis
from playwright.async_api import Page, expect

from service.protocol.user import identify_user
from service.store.keys import mark_key
from service.worker import Worker
from tests.pages.accessibility import assert_usable
from tests.pages.application import Application
from tests.pages.stage import SHOP, Stage
from tests.pages.steps import (
    allow,
    be_signed_in,
    button,
    expect_consent,
    expect_heading,
    expect_login,
    expect_refusal,
    guess_until_throttled,
    log_in,
    register_person,
    spoil_login_form,
)
from tests.support.browser import SESSIONS, authorization_url, page_text, register
from tests.support.clients_and_users import ALICE, PHONE_APP, WEB_SHOP, OAuthClient, UserCredentials

EDGES = """buttons => buttons.map(button => getComputedStyle(button)).map(style => [
  style.borderTopStyle, parseFloat(style.borderTopWidth) >= 1, style.borderTopColor === style.backgroundColor])"""


@dataclass(frozen=True)
class Scene:
    """The objects that the state of a page may need."""

    page: Page
    worker: Worker
    http: httpx2.AsyncClient
    store: redis.Redis
    stage: Stage
    application: Application

    @property
    def request_address(self) -> str:
        return authorization_url(SHOP, self.application.callback)

    async def open_consent_page(
        self, address: str = "", client_name: str = "Example Shop", credentials: UserCredentials = ALICE
    ) -> None:
        await be_signed_in(self.page, self.worker, credentials)
        await self.page.goto(address or self.request_address)
        await expect_consent(self.page, client_name)


@pytest.fixture
def scene(
    page: Page,
    worker: Worker,
    http: httpx2.AsyncClient,
    store: redis.Redis,
    shared_stage: Stage,
    application: Application,
) -> Scene:
    return Scene(page, worker, http, store, shared_stage, application)


async def start(scene: Scene) -> None:
    await scene.page.goto("/")
    await expect_heading(scene.page, "start.heading")


async def login(scene: Scene) -> None:
    await scene.page.goto(scene.request_address)
    await expect_login(scene.page)


async def login_wrong(scene: Scene) -> None:
    await scene.page.goto(scene.request_address)
    await log_in(scene.page, UserCredentials(ALICE.username, "a guess"))
    await expect(scene.page.get_by_role("alert")).to_have_text(page_text("login.error_wrong"))


async def login_empty(scene: Scene) -> None:
    await scene.page.goto(SESSIONS)
    await button(scene.page, "login.submit").click()
    await expect(scene.page.get_by_text(page_text("login.password_missing"))).to_be_visible()


async def login_throttled(scene: Scene) -> None:
    await guess_until_throttled(scene.http, scene.store, ALICE)
    await scene.page.goto(scene.request_address)
    await log_in(scene.page)
    await expect(scene.page.get_by_role("alert")).to_have_text(page_text("login.error_throttled"))


async def consent(scene: Scene) -> None:
    await scene.open_consent_page()


async def consent_to_several_roles_over_http(scene: Scene) -> None:
    callback = "http://shop.example/callback"
    plain = await register(scene.worker, "plain", callback, client_name="Plain Shop")
    await scene.open_consent_page(
        authorization_url(plain, callback, scope="role:enduser role:organisation"), "Plain Shop"
    )
    await expect(scene.page.get_by_text(page_text("consent.insecure_heading"))).to_be_visible()


async def consent_of_long_names(scene: Scene) -> None:
    """Open a consent page with names of the maximum length, without a place to break a line."""
    name = "Donaudampfschifffahrtsgesellschaft" * 6
    client = await register(scene.worker, "long" * 60, scene.application.callback, client_name=name)
    person = await register_person(scene.worker, "w" * 240 + "@example.com", name="M" * 200)
    await scene.open_consent_page(authorization_url(client, scene.application.callback), name, person)


async def expired(scene: Scene) -> None:
    await scene.page.goto(scene.request_address)
    await spoil_login_form(scene.page)
    await log_in(scene.page)
    await expect_refusal(scene.page, "expired")


async def answered(scene: Scene) -> None:
    await scene.page.goto(scene.request_address)
    await log_in(scene.page)
    await allow(scene.page)
    await scene.application.arrival_of(scene.page)
    await scene.page.go_back()
    await expect_refusal(scene.page, "answered")


async def refused(scene: Scene) -> None:
    """Open an error page with details for developers."""
    await scene.page.goto(authorization_url(OAuthClient("unknown"), scene.application.callback))
    await expect_refusal(scene.page, "unverified")


async def refused_forged(scene: Scene) -> None:
    await scene.page.goto(scene.request_address)
    await scene.page.context.clear_cookies()
    await log_in(scene.page)
    await expect_refusal(scene.page, "forged")


async def refused_signed_out(scene: Scene) -> None:
    await scene.open_consent_page()
    scene.store.delete(*scene.store.scan_iter("browser:*"))
    await allow(scene.page)
    await expect_refusal(scene.page, "signed_out")


async def busy(scene: Scene) -> None:
    """Open a page while Redis does not answer."""
    with scene.stage.redis.frozen():
        await scene.page.goto(SESSIONS)
        await expect_refusal(scene.page, "busy")


async def login_busy(scene: Scene) -> None:
    await scene.page.goto(SESSIONS)
    scene.store.config_set("maxmemory", 1)
    try:
        await log_in(scene.page)
        await expect(scene.page.get_by_role("alert")).to_have_text(page_text("login.error_busy"))
    finally:
        scene.store.config_set("maxmemory", 0)


async def unforeseen(scene: Scene) -> None:
    """Provoke an unexpected error by a value that no script of ours writes."""
    alice = identify_user(ALICE.realm, ALICE.username)
    await scene.page.goto(SESSIONS)
    scene.store.set(mark_key(alice.shard, alice.subject), "no time", ex=60)
    await log_in(scene.page)
    await expect_refusal(scene.page, "unforeseen")


async def sessions_none(scene: Scene) -> None:
    await be_signed_in(scene.page, scene.worker)
    await scene.page.goto(SESSIONS)
    await expect(scene.page.get_by_text(page_text("sessions.none_heading"))).to_be_visible()


async def sessions(scene: Scene) -> None:
    await PHONE_APP.log_in(scene.http, ALICE)
    await PHONE_APP.log_in(scene.http, ALICE)
    await WEB_SHOP.log_in(scene.http, ALICE)
    await be_signed_in(scene.page, scene.worker)
    await scene.page.goto(SESSIONS)
    await expect(scene.page.locator("ul.sessions > li")).to_have_count(3)


async def signed_out(scene: Scene) -> None:
    await be_signed_in(scene.page, scene.worker)
    await scene.page.goto(SESSIONS)
    await button(scene.page, "sessions.sign_out").click()
    await expect(scene.page.get_by_role("status")).to_be_visible()


STATES: list[Callable[[Scene], Awaitable[None]]] = [
    login,
    login_wrong,
    consent_to_several_roles_over_http,
    refused,
    sessions,
    signed_out,
]
LIKE_OTHERS: list[Callable[[Scene], Awaitable[None]]] = [
    start,
    login_empty,
    login_throttled,
    login_busy,
    consent,
    consent_of_long_names,
    answered,
    sessions_none,
    expired,
    refused_forged,
    refused_signed_out,
    busy,
    unforeseen,
]
"""States that are parts of those above, or differ from `login_wrong` and `refused` in their texts only."""


@pytest.mark.parametrize("reach", [*STATES, *(pytest.param(like, marks=pytest.mark.long) for like in LIKE_OTHERS)])
async def test_everybody_can_use_the_page_in_this_state(
    scene: Scene, reach: Callable[[Scene], Awaitable[None]]
) -> None:
    await reach(scene)
    await assert_usable(scene.page)


async def test_nothing_moves_for_who_does_not_want_that(scene: Scene) -> None:
    await login(scene)
    durations = "() => getComputedStyle(document.querySelector('button')).transitionDuration"
    assert "0s" not in (await scene.page.evaluate(durations)).split(", ")
    await scene.page.emulate_media(reduced_motion="reduce")
    assert await scene.page.evaluate(durations) == "0s"


async def test_buttons_have_an_edge_where_the_system_chooses_the_colours(scene: Scene) -> None:
    await scene.page.emulate_media(forced_colors="active")
    for reach in (login, consent, sessions_none):
        await reach(scene)
        edges = await scene.page.locator(".button").evaluate_all(EDGES)
        assert edges
        assert all(edge == ["solid", True, False] for edge in edges), edges
