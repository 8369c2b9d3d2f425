"""The objects of the store over any client, with names that a test makes."""

from typing import Any

import msgspec

from service.crypto.keyring import (
    Keyring,
    RefreshToken,
    make_access_token,
    make_browser_session,
    make_consent,
    make_first_refresh_token,
)
from service.protocol.authorization_code import AuthorizationCode
from service.protocol.client import Client
from service.protocol.token_form import RandomToken
from service.protocol.user import User
from service.store.attempts import Attempts
from service.store.browsers.browser_sessions import BrowserSessions
from service.store.browsers.consents import AllowAnswer, Consents, DenyAnswer
from service.store.client import StoreClient
from service.store.events import EventStream
from service.store.keys import index_key, mark_key, revoked_key
from service.store.registry.store import RegistryStore
from service.store.sessions.access_tokens import AccessTokens
from service.store.sessions.codes import Codes
from service.store.sessions.families import Families, RefreshRefused, Spent
from service.store.sessions.revocations import Revocations
from service.store.single_use import SingleUse
from tests.store.sessions import ALL_SCOPES, DEFAULT_LIFETIMES
from tests.support.codes import SESSION_MS, consent_request_for, make_code_to_allow
from tests.support.logins import LATER_MS, login_of

USER = User(realm="cep", username="alice@example.com")
"""A user of an external realm, who needs no record. The revision is empty."""

CHANGED_USER = msgspec.structs.replace(USER, revision="another")
SHARD, SUBJECT = USER.identity.shard, USER.identity.digest
INDEX, MARK, REVOKED = (key(SHARD, SUBJECT) for key in (index_key, mark_key, revoked_key))
SCOPE = "realm:cep role:organisation"
CLIENT_ID = "phone-app"


class Grant:
    """The names of one grant: its first refresh token, and its access tokens in the order of issue."""

    def __init__(self) -> None:
        self.first: RefreshToken = make_first_refresh_token(SHARD)
        self.access_tokens: list[RandomToken] = [make_access_token(SHARD)]


class Page:
    """The names of one consent: its browser session, the consent, and the code that it leads to."""

    def __init__(self, browser: RandomToken | None = None) -> None:
        self.browser = browser or make_browser_session(SHARD)
        self.consent = make_consent(SHARD)
        self.code_name = Keyring((b"k" * 32,)).derive_code(self.consent)


class StoreObjects:
    """All objects of the store over one client, with the default lifetimes. `own` are lifetimes of the OAuth client."""

    def __init__(self, store_client: StoreClient) -> None:
        self.store_client = store_client
        self.families = Families(store_client, DEFAULT_LIFETIMES)
        self.access_tokens = AccessTokens(store_client)
        self.codes = Codes(store_client, DEFAULT_LIFETIMES)
        self.consents = Consents(store_client, DEFAULT_LIFETIMES)
        self.browser_sessions = BrowserSessions(store_client)
        self.single_use = SingleUse(store_client)
        self.attempts = Attempts(store_client, Keyring([bytes(32)]).digest_origin)
        self.revocations = Revocations(store_client)
        self.registry = RegistryStore(store_client)
        self.events = EventStream(store_client)

    async def start(
        self, user: User = USER, *, secret_used: bool = False, begun_ms: int = LATER_MS, **own: Any
    ) -> Grant | None:
        """Start a family. Returns None if the user's record changed."""
        grant = Grant()
        lives_ms = await self.families.start(
            login_of(user, begun_ms=begun_ms),
            client=Client(client_id=CLIENT_ID, **own),
            scope=SCOPE,
            secret_used=secret_used,
            refresh_token=grant.first,
            access_token=grant.access_tokens[0],
        )
        return None if lives_ms is None else grant

    async def must_start(self, *, secret_used: bool = False, **own: Any) -> Grant:
        grant = await self.start(secret_used=secret_used, **own)
        assert grant is not None
        return grant

    async def spend(
        self,
        grant: Grant,
        generation: int,
        *,
        client_id: str = CLIENT_ID,
        secret_used: bool = False,
        wanted_scope: str = "",
        allowed_scope: str = ALL_SCOPES,
        **own: Any,
    ) -> Spent | RefreshRefused:
        access_token = make_access_token(SHARD)
        outcome = await self.families.spend(
            grant.first._replace(generation=generation),
            client=Client(client_id=client_id, scope=allowed_scope, **own),
            secret_used=secret_used,
            wanted_scope=wanted_scope,
            access_token=access_token,
        )
        if isinstance(outcome, Spent):
            grant.access_tokens.append(access_token)
        return outcome

    async def sign_in(
        self, page: Page, user: User = USER, *, former: RandomToken | None = None, begun_ms: int = LATER_MS
    ) -> bool:
        login = login_of(user, begun_ms=begun_ms)
        return await self.browser_sessions.start(page.browser, login, lifetime_ms=SESSION_MS, former=former)

    async def hold(self, page: Page) -> bool:
        return await self.consents.hold(page.consent, page.browser, consent_request_for(make_code()))

    async def open(self) -> Page:
        """Sign in and hold a consent."""
        page = Page()
        assert await self.sign_in(page)
        assert await self.hold(page)
        return page

    async def allow(self, page: Page, user: User = USER) -> AllowAnswer:
        request = consent_request_for(make_code())
        return await self.consents.allow(page.consent, page.browser, user, page.code_name, request)

    async def deny(self, page: Page) -> DenyAnswer:
        return await self.consents.deny(page.consent, page.browser)

    async def issue_code(self) -> RandomToken:
        page = await self.open()
        assert await self.allow(page) == "issued"
        return page.code_name

    async def redeem(self, name: RandomToken) -> int | str:
        grant, client = Grant(), Client(client_id=CLIENT_ID)
        return await self.codes.redeem(
            name, client=client, secret_used=False, refresh_token=grant.first, access_token=grant.access_tokens[0]
        )


def make_code() -> AuthorizationCode:
    """Return what the user allows in every consent."""
    return make_code_to_allow(USER.username, CLIENT_ID, "https://app.example/callback", SCOPE, "c" * 43)
