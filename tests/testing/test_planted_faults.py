"""Ten usual faults of OAuth clients, planted in the example client. The service for tests finds each of them.

The first column of `FAULTS` is a variant of the client, the second the scenario that finds its fault.
"""

import logging
import re
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from authlib.integrations.httpx_client import AsyncOAuth2Client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from token_service_testing.pytest_plugin import TokenService

from examples.client import AppSession, ExampleClient, RequestFailed
from tests.clients.example_client import SCOPE, press, read_page
from tests.support.browser import Browser
from tests.support.clients_and_users import ALICE, VERIFY, WEB_SHOP, bearer

HOME = "http://127.0.0.1:9000"


class Shop(ExampleClient):
    """The example client, with a page that calls an API. Workers share its sessions."""

    def make_app(self) -> Starlette:
        app = super().make_app()
        app.router.routes.append(Route("/orders", self.with_session(self.show_orders)))
        return app

    async def show_orders(self, request: Request, session: AppSession) -> Response:
        status = await self.call_api(session)
        if status == 401:
            await self.refresh(request, session)
            status = await self.call_api(session)
        return Response(status_code=status)

    async def call_api(self, session: AppSession) -> int:
        async with httpx2.AsyncClient() as http:
            return (await http.get(self.issuer + VERIFY, headers=bearer(session.token["access_token"]))).status_code


class WithoutState(Shop):
    async def handle_callback(self, request: Request, session: AppSession) -> Response:
        session.state = request.query_params["state"]
        return await super().handle_callback(request, session)


class WithoutVerifier(Shop):
    async def handle_callback(self, request: Request, session: AppSession) -> Response:
        session.code_verifier = ""
        return await super().handle_callback(request, session)


class OtherRedirectUri(Shop):
    async def handle_callback(self, request: Request, session: AppSession) -> Response:
        self.home_url = "http://localhost:9000/"
        return await super().handle_callback(request, session)


class KeepsFirstRefreshToken(Shop):
    async def send_refresh(self, oauth: AsyncOAuth2Client, endpoint: str, session: AppSession) -> None:
        refresh_token = session.token["refresh_token"]
        await super().send_refresh(oauth, endpoint, session)
        session.token = {**session.token, "refresh_token": refresh_token}


class RepeatsLostRefreshLater(Shop):
    async def send_refresh(self, oauth: AsyncOAuth2Client, endpoint: str, session: AppSession) -> None:
        session.token = await oauth.refresh_token(endpoint, session.token["refresh_token"])


class TakesOutageForTheEnd(Shop):
    async def refresh(self, request: Request, session: AppSession) -> Response:
        try:
            return await super().refresh(request, session)
        except RequestFailed:
            session.token = {}
            raise


class KeepsDeadSession(Shop):
    async def refresh(self, request: Request, session: AppSession) -> Response:
        token = session.token
        try:
            return await super().refresh(request, session)
        except RequestFailed:
            session.token, session.notice = token, "Try again later."
            return RedirectResponse("/", 303)


class UsesExpiredToken(Shop):
    async def show_orders(self, request: Request, session: AppSession) -> Response:
        return Response(status_code=await self.call_api(session))


class KeepsTokensPerWorker(Shop):
    def __init__(self, options: Namespace) -> None:
        super().__init__(options)
        self.tokens: dict[str, Mapping[str, Any]] = {}

    async def show_page(self, request: Request, session: AppSession) -> Response:
        session.token = self.tokens.setdefault(session.csrf_token, session.token) or session.token
        return await super().show_page(request, session)

    async def refresh(self, request: Request, session: AppSession) -> Response:
        response = await super().refresh(request, session)
        self.tokens[session.csrf_token] = session.token
        return response


class LogsTokens(Shop):
    async def handle_callback(self, request: Request, session: AppSession) -> Response:
        response = await super().handle_callback(request, session)
        logging.getLogger("shop").info("signed in: %s", session.token)
        return response


@dataclass
class Shopping:
    """Alice's browser at two workers of a shop. The second one does not have her cookie yet."""

    service: TokenService
    pages: Browser
    worker: httpx2.AsyncClient
    other_worker: httpx2.AsyncClient
    log: pytest.LogCaptureFixture

    async def allow(self) -> str:
        """Press "Sign in" and allow the request. Returns the address of the callback with its parameters."""
        address = (await press(self.worker, "/sign-in")).headers["location"]
        page = await self.pages.open_consent_page(address.removeprefix(self.service.url))
        location: str = (await self.pages.allow(page)).headers["location"]
        return location

    async def sign_in(self) -> None:
        await self.worker.get(await self.allow())
        assert "You are signed in." in await read_page(self.worker)

    async def refresh(self, worker: httpx2.AsyncClient | None = None) -> None:
        await press(worker or self.worker, "/refresh")
        assert "The tokens were refreshed." in await read_page(worker or self.worker)


async def sign_in(shopping: Shopping) -> None:
    await shopping.sign_in()


async def another_browser_brings_the_response(shopping: Shopping) -> None:
    await shopping.other_worker.get(await shopping.allow())
    assert "did not start that sign-in" in await read_page(shopping.other_worker)


async def refresh_twice(shopping: Shopping) -> None:
    await shopping.sign_in()
    await shopping.refresh()
    shopping.service.advance(seconds=301)
    await shopping.refresh()


async def lose_the_response_of_a_refresh(shopping: Shopping) -> None:
    await shopping.sign_in()
    shopping.service.lose(answers=1)
    await press(shopping.worker, "/refresh")
    shopping.service.advance(seconds=301)
    await shopping.refresh()


async def refresh_in_an_outage(shopping: Shopping) -> None:
    await shopping.sign_in()
    shopping.service.outage(is_on=True)
    await press(shopping.worker, "/refresh")
    shopping.service.outage(is_on=False)
    await shopping.refresh()


async def refresh_an_ended_session(shopping: Shopping) -> None:
    await shopping.sign_in()
    shopping.service.end(username=ALICE.username)
    await press(shopping.worker, "/refresh")
    assert "You are not signed in." in await read_page(shopping.worker)


async def call_an_api_after_the_expiry(shopping: Shopping) -> None:
    await shopping.sign_in()
    shopping.service.advance(seconds=601)
    assert (await shopping.worker.get("/orders")).status_code == 200


async def refresh_at_two_workers(shopping: Shopping) -> None:
    await shopping.sign_in()
    shopping.other_worker.cookies.update(shopping.worker.cookies)
    await read_page(shopping.other_worker)
    await shopping.refresh()
    shopping.service.advance(seconds=301)
    await shopping.refresh(shopping.other_worker)


async def read_the_log(shopping: Shopping) -> None:
    shopping.log.set_level(logging.INFO)
    await shopping.sign_in()
    await shopping.refresh()
    assert not re.search("ts[ar]t1_", shopping.log.text)


Scenario = Callable[[Shopping], Awaitable[None]]
FAULTS: Mapping[type[Shop], Scenario] = {
    WithoutState: another_browser_brings_the_response,
    WithoutVerifier: sign_in,
    OtherRedirectUri: sign_in,
    KeepsFirstRefreshToken: refresh_twice,
    RepeatsLostRefreshLater: lose_the_response_of_a_refresh,
    TakesOutageForTheEnd: refresh_in_an_outage,
    KeepsDeadSession: refresh_an_ended_session,
    UsesExpiredToken: call_an_api_after_the_expiry,
    KeepsTokensPerWorker: refresh_at_two_workers,
    LogsTokens: read_the_log,
}


@pytest.fixture
async def run(
    token_service: TokenService, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Callable[[type[Shop], Scenario], Awaitable[None]]]:
    """Run a scenario with two workers of this shop, which share their sessions."""
    async with AsyncExitStack() as stack:

        async def run(shop: type[Shop], scenario: Scenario) -> None:
            options = {"client_id": WEB_SHOP.client_id, "client_secret": WEB_SHOP.client_secret}
            shops = [shop(Namespace(issuer=token_service.url, **options, port=9000, scope=SCOPE)) for _ in range(2)]
            shops[1].sessions = shops[0].sessions
            transports = [httpx2.ASGITransport(app=each.make_app()) for each in shops]
            clients = [httpx2.AsyncClient(transport=each, base_url=HOME) for each in transports]
            clients.append(httpx2.AsyncClient(base_url=token_service.url))
            worker, other_worker, pages = [await stack.enter_async_context(client) for client in clients]
            await scenario(Shopping(token_service, Browser(pages), worker, other_worker, caplog))

        yield run


Run = Callable[[type[Shop], Scenario], Awaitable[None]]


@pytest.mark.parametrize("scenario", dict.fromkeys(FAULTS.values()), ids=lambda scenario: scenario.__name__)
async def test_example_client_has_none_of_the_faults(run: Run, scenario: Scenario) -> None:
    await run(Shop, scenario)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_planted_fault_is_found(run: Run, fault: type[Shop]) -> None:
    with pytest.raises(AssertionError):
        await run(fault, FAULTS[fault])
