"""A rotation of the secret key over several instances: whatever began under one key works under the next."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from tests.conftest import SECRET_KEY, Clock, MakeSettings, serving
from tests.support.browser import SESSIONS, Browser, Page, authorization_response, authorization_url, is_consent_page
from tests.support.clients_and_users import ALICE, AUDITOR, PHONE_APP, PHONE_CALLBACK, VERIFY, bearer, tokens_of

NEXT_KEY = "the key of tomorrow of 32 bytes or more: a long one"
STEPS = (SECRET_KEY, f"{SECRET_KEY},{NEXT_KEY}", f"{NEXT_KEY},{SECRET_KEY}", NEXT_KEY)
REQUEST = authorization_url(scope="realm:main role:enduser")

pytestmark = pytest.mark.clause("decided-secret-key-rotation")


class AlternatingTransport(httpx2.AsyncBaseTransport):
    """A transport that sends each request to the other of two instances."""

    def __init__(self, *instances: httpx2.AsyncClient) -> None:
        self._instances = itertools.cycle(instances)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await next(self._instances).send(request)


@asynccontextmanager
async def alternating_http(
    make_settings: MakeSettings, clock: Clock, keys: tuple[str, str]
) -> AsyncIterator[httpx2.AsyncClient]:
    first, second = (make_settings(TOKEN_SERVICE_SECRET_KEY=key) for key in keys)
    async with serving(first, clock) as one, serving(second, clock) as other:
        transport = AlternatingTransport(one, other)
        async with httpx2.AsyncClient(transport=transport, base_url=one.base_url) as http:
            yield http


class KeyedObjects:
    """A set with one of each thing that is made with a key.

    `create` makes them at one instance, and `use` uses them at another.
    """

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.browser = Browser(http)

    async def create(self) -> None:
        await self.browser.sign_in(stay="yes")
        self.tokens = tokens_of(await PHONE_APP.log_in(self.browser.http, ALICE))
        self.code = await self.browser.get_code(scope="realm:main role:enduser")
        self.consent = await self.browser.open_consent_page(REQUEST)

    async def use(self, http: httpx2.AsyncClient) -> None:
        self.browser.http = http
        self.tokens = tokens_of(await PHONE_APP.refresh(http, self.tokens["refresh_token"]))
        assert (await AUDITOR.introspect(http, self.tokens["refresh_token"])).json()["active"]
        assert (await http.get(VERIFY, headers=bearer(self.tokens["access_token"]))).status_code == 200
        assert tokens_of(await PHONE_APP.exchange(http, self.code, PHONE_CALLBACK))
        self.code = authorization_response(await self.browser.allow(self.consent))["code"]
        self.consent = await self.browser.open(REQUEST)
        assert is_consent_page(self.consent)
        assert ALICE.username in Page(await self.browser.open(SESSIONS)).text


async def test_nothing_is_lost_by_restarts_with_other_keys(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    """Each step begins when all instances have the previous key.

    Everything made with a dropped key was renewed before.
    """
    async with serving(make_settings(TOKEN_SERVICE_SECRET_KEY=STEPS[0]), clock) as http:
        everything = KeyedObjects(http)
        await everything.create()
    for keys in itertools.pairwise(STEPS):
        async with alternating_http(make_settings, clock, keys) as http:
            for _ in range(2):
                await everything.use(http)
                # One more request, so that the next round sends each request to the other instance.
                await http.get("/healthz")
        async with serving(make_settings(TOKEN_SERVICE_SECRET_KEY=keys[1]), clock) as http:
            await everything.use(http)


@pytest.mark.parametrize("keys", [*itertools.pairwise(STEPS)])
async def test_every_form_of_one_instance_is_taken_by_the_other(
    make_settings: MakeSettings, clock: Clock, registry: None, keys: tuple[str, str]
) -> None:
    """The login form, the consent form and the sign-out form each work at the instance that did not render it."""
    async with alternating_http(make_settings, clock, keys) as http:
        browser = Browser(http)
        login = await browser.open(REQUEST)
        consent = await browser.log_in(login)
        assert is_consent_page(consent)
        # Each form took two page requests. One more request moves the next one to the other instance.
        await http.get(VERIFY)
        authorization_response(await browser.allow(consent))
        sessions = await browser.open(SESSIONS)
        signed_out = await browser.submit(sessions, "/sessions/sign-out", {})
        assert signed_out.status_code == 200
        assert ALICE.username not in Page(signed_out).text
