"""One user's life over HTTP: one of every kind of operation, and all that was given out or sent on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx2

from service.app import Parts
from service.protocol.pkce import make_code_challenge
from tests.cast import (
    ALICE,
    MADE_SECRET,
    PHONE_APP,
    PHONE_CALLBACK,
    READER,
    WEB_SHOP,
    App,
    Person,
    revoke_all,
    tokens_of,
)
from tests.conftest import Clock, make_code

WRONG_PASSWORD = "a wrong password of Alice's"
WRONG_SECRET = "a-wrong-secret-of-the-shop"
VERIFIER = "a-code-verifier-that-is-long-enough-for-the-rfc-0123456789"


@dataclass
class Life:
    """`presentable` is all that would open something: tokens, codes, secrets, passwords, verifiers."""

    http: httpx2.AsyncClient
    parts: Parts
    clock: Clock
    presentable: set[str] = field(default_factory=set)

    async def operations(self) -> AsyncIterator[str]:
        """The name of each operation, after it was done."""
        self.presentable |= {ALICE.password, WRONG_PASSWORD, WRONG_SECRET, VERIFIER}
        self.presentable |= {app.client_secret for app in (WEB_SHOP, MADE_SECRET, READER) if app.client_secret}
        first = self._keep(await PHONE_APP.log_in(self.http, ALICE))
        yield "a login"
        for app in (WEB_SHOP, MADE_SECRET, READER):
            self._keep(await app.log_in(self.http, ALICE))
            yield f"a login at {app.client_id}"
        await PHONE_APP.log_in(self.http, Person(ALICE.username, WRONG_PASSWORD))
        await PHONE_APP.log_in(self.http, Person("nobody@example.com", WRONG_PASSWORD))
        yield "wrong passwords"
        await App(WEB_SHOP.client_id, WRONG_SECRET).log_in(self.http, ALICE)
        yield "a wrong secret"
        code = await make_code(self.parts, code_challenge=make_code_challenge(VERIFIER))
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
        self.presentable.add(await make_code(self.parts))
        last = self._keep(await PHONE_APP.log_in(self.http, ALICE))
        await revoke_all(self.http, last["access_token"])
        yield "revokeAll"
        self._keep(await PHONE_APP.log_in(self.http, ALICE))
        yield "a login after revokeAll"
        assert (await self.http.get("/readyz")).status_code == 200
        yield "a probe"

    def _keep(self, response: httpx2.Response) -> dict[str, str]:
        tokens = dict(tokens_of(response))
        self.presentable |= {tokens["access_token"], tokens["refresh_token"]}
        return tokens
