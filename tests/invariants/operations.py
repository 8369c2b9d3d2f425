"""A run of every kind of operation by one user over HTTP, which records all secrets on the way."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx2

from service.protocol.authorization_code import make_code_challenge
from service.worker import Worker
from tests.conftest import Clock, make_code
from tests.support.browser import (
    SWITCH,
    Browser,
    Page,
    assert_refused,
    assert_sent_back,
    authorization_response,
    authorization_url,
)
from tests.support.clients_and_users import (
    ALICE,
    MADE_SECRET,
    PHONE_APP,
    PHONE_CALLBACK,
    READER,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
    revoke_all,
    tokens_of,
)

WRONG_PASSWORD = "a wrong password of Alice's"
WRONG_SECRET = "a-wrong-secret-of-the-shop"
VERIFIER = "a-code-verifier-that-is-long-enough-for-the-rfc-0123456789"


@dataclass
class Operations:
    """A run of all operations. `presentable` has every secret that could be presented to the service.

    These are tokens, codes, secrets, passwords and verifiers, the cookies of browsers, and the names and signatures in
    forms.
    """

    http: httpx2.AsyncClient
    worker: Worker
    clock: Clock
    presentable: set[str] = field(default_factory=set)

    async def run_all(self) -> AsyncIterator[str]:
        """The name of each operation, after it was done."""
        self.presentable |= {ALICE.password, WRONG_PASSWORD, WRONG_SECRET, VERIFIER}
        self.presentable |= {client.client_secret for client in (WEB_SHOP, MADE_SECRET, READER) if client.client_secret}
        first = self._keep(await PHONE_APP.log_in(self.http, ALICE))
        yield "a login"
        for client in (WEB_SHOP, MADE_SECRET, READER):
            self._keep(await client.log_in(self.http, ALICE))
            yield f"a login at {client.client_id}"
        await PHONE_APP.log_in(self.http, UserCredentials(ALICE.username, WRONG_PASSWORD))
        await PHONE_APP.log_in(self.http, UserCredentials("nobody@example.com", WRONG_PASSWORD))
        yield "wrong passwords"
        await OAuthClient(WEB_SHOP.client_id, WRONG_SECRET).log_in(self.http, ALICE)
        yield "a wrong secret"
        code = await make_code(self.worker, code_challenge=make_code_challenge(VERIFIER))
        self.presentable.add(code)
        yield "a code"
        await PHONE_APP.exchange(self.http, code, PHONE_CALLBACK, code_verifier="w" * 43)
        yield "an exchange with a wrong verifier"
        self._keep(await PHONE_APP.exchange(self.http, code, PHONE_CALLBACK, code_verifier=VERIFIER))
        yield "an exchange"
        await PHONE_APP.exchange(self.http, code, PHONE_CALLBACK, code_verifier=VERIFIER)
        yield "a second exchange"
        second = self._keep(await PHONE_APP.refresh(self.http, first["refresh_token"]))
        yield "a refresh"
        self._keep(await PHONE_APP.refresh(self.http, first["refresh_token"]))
        yield "a replay"
        await WEB_SHOP.refresh(self.http, second["refresh_token"])
        yield "another client's refresh"
        await PHONE_APP.revoke(self.http, second["access_token"])
        yield "an access token revoked"
        stolen = self._keep(await PHONE_APP.log_in(self.http, ALICE))
        self._keep(await PHONE_APP.refresh(self.http, stolen["refresh_token"]))
        self.clock.advance(301)
        await PHONE_APP.refresh(self.http, stolen["refresh_token"])
        yield "a theft"
        await PHONE_APP.revoke(self.http, second["refresh_token"])
        yield "a session revoked"
        async for operation in self._pages():
            yield operation
        self.presentable.add(await make_code(self.worker))
        last = self._keep(await PHONE_APP.log_in(self.http, ALICE))
        await revoke_all(self.http, last["access_token"])
        yield "revokeAll"
        self._keep(await PHONE_APP.log_in(self.http, ALICE))
        yield "a login after revokeAll"
        assert (await self.http.get("/readyz")).status_code == 200
        yield "a probe"

    async def _pages(self) -> AsyncIterator[str]:
        """Use the pages with browsers. Yields each operation."""
        browser, other = Browser(self.http), Browser(self.http)
        challenge = make_code_challenge(VERIFIER)
        address = authorization_url(
            state="a state of the client's", code_challenge_method="S256", code_challenge=challenge
        )
        page = self._see(browser, await browser.open(address))
        yield "a login page"
        self._see(browser, await browser.log_in(page, UserCredentials(ALICE.username, WRONG_PASSWORD)))
        yield "a wrong password in a browser"
        page = self._see(browser, await browser.log_in(page))
        yield "a consent page after a login"
        code = authorization_response(self._see(browser, await browser.allow(page)))["code"]
        self.presentable.add(code)
        yield "a consent allowed"
        assert authorization_response(await browser.allow(page))["code"] == code
        yield "a double click"
        self._keep(await PHONE_APP.exchange(self.http, code, PHONE_CALLBACK, code_verifier=VERIFIER))
        assert_refused(await browser.allow(page), 400, "answered")
        yield "a click too many"
        page = self._see(browser, await browser.open_consent_page(authorization_url()))
        assert_sent_back(await browser.deny(page), "access_denied")
        yield "a consent denied"
        self._see(browser, await browser.open_consent_page(authorization_url()))
        yield "a consent that nobody answers"
        page = self._see(other, await other.sign_in())
        yield "the page of the sessions"
        oldest = [form for form in Page(page).forms if form.action == "/sessions/end"][-1]
        self._see(other, await other.send(oldest.action, oldest.fields))
        yield "a session ended by its user"
        self._see(other, await other.submit(page, "/sessions/sign-out", {}))
        yield "a browser signed out"
        page = self._see(browser, await browser.open_consent_page(authorization_url()))
        self._see(browser, await browser.submit(page, SWITCH, {}))
        yield "a login as somebody else"
        self._see(browser, await browser.open_consent_page(authorization_url(), stay="yes"))
        yield "a browser that stays signed in"
        page = self._see(other, await other.sign_in())
        self._see(other, await other.submit(page, "/sessions/end-all", {}))
        yield "all sessions ended by their user"
        self._see(browser, await browser.open_consent_page(authorization_url()))
        yield "a login in a browser after that"

    def _see(self, browser: Browser, response: httpx2.Response) -> httpx2.Response:
        """Notes what this browser could bring back by now; of a device each part of its cookie.

        The sessions that a page lists have names too, which open nothing.
        """
        assert response.status_code in (200, 303), response.text
        forms = Page(response).forms if response.status_code == 200 else []
        for form in forms:
            self.presentable |= {form.fields[name] for name in ("request", "csrf") if name in form.fields}
        self.presentable |= set(browser.cookie_values.values())
        device = next((value for name, value in browser.cookie_values.items() if name.endswith("device")), "")
        self.presentable |= {part for entry in device.split(".") for part in entry.split("~") if part}
        return response

    def _keep(self, response: httpx2.Response) -> dict[str, str]:
        tokens = dict(tokens_of(response))
        self.presentable |= {tokens["access_token"], tokens["refresh_token"]}
        return tokens
