"""The components that the pages with a login share, and the steps that several of these pages take.

Clauses: RFC 6749 §10.2, §10.10, RFC 6819 §4.4.1.8, SPEC §4.1, §5.2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from service.config.settings import Settings
from service.crypto.hashing_pool import HashingPool
from service.crypto.keyring import Keyring, make_browser_session, make_consent
from service.protocol.authorization import (
    AuthorizationRequest,
    ConsentRequest,
    make_consent_request,
    recheck_registration,
)
from service.protocol.client import Client, Lifetimes
from service.protocol.errors import AccessDenied, InvalidGrant, LoginThrottled, OAuthError, TemporarilyUnavailable
from service.protocol.token_form import RandomToken, digest_token
from service.protocol.user import Login, User
from service.realms.external import ExternalRealm
from service.realms.login import Logins
from service.registry.cache import ClientCache, UserCache
from service.registry.password_change import PasswordChange
from service.store.attempts import Attempts, Exhausted, make_address_counters
from service.store.browsers.browser_sessions import BrowserSession, BrowserSessions
from service.store.browsers.consents import Consents
from service.store.registry.store import RegistryStore
from service.store.sessions.families import Families
from service.store.sessions.revocations import Revocations
from service.store.single_use import SingleUse
from service.web.pages.cookies import BrowserCookies
from service.web.pages.page import PageRefusal, Pages
from service.web.pages.pending_logins import FORM, PendingLogin, PendingLogins, Place
from service.web.request.browser_name import name_browser
from service.web.request.client_address import get_prefixes
from service.web.request.security_events import record_request_event, record_user_event, recording_login
from service.web.request.state import REASON

LoginRefusal = Literal["wrong", "throttled", "busy"]
"""The refusals of a login that have a text on the login page and in the form for a new password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSteps:
    """The base of all pages that belong to a login or need one."""

    pages: Pages
    browsers: BrowserCookies
    settings: Settings
    lifetimes: Lifetimes
    keyring: Keyring
    passwords: HashingPool
    registry: RegistryStore
    clients: ClientCache
    users: UserCache
    password_change: PasswordChange
    attempts: Attempts
    logins: Logins
    pending_logins: PendingLogins
    single_use: SingleUse
    browser_sessions: BrowserSessions
    consents: Consents
    families: Families
    revocations: Revocations

    @property
    def callback_address(self) -> str:
        """The redirect URI that is registered at identity providers."""
        return f"{self.settings.web_url}/authorization/callback"

    async def count_page(self, request: Request) -> None:
        """Count a page that begins a login, per address. Raises TemporarilyUnavailable past the limit."""
        counters = make_address_counters("page", get_prefixes(request), self.settings.pages_per_address)
        try:
            await self.attempts.count(counters)
        except Exhausted as error:
            record_request_event(request, "pages_throttled")
            raise TemporarilyUnavailable("pages_throttled", retry_after_seconds=error.wait_seconds) from None

    async def find_session(self, request: Request) -> BrowserSession | None:
        """Return the browser session of the request, or None if there is none. Its user may be disabled."""
        name = self.browsers.find_session_token(request)
        return await self.browser_sessions.find(name) if name else None

    def describe_refusal(
        self, request: Request, page: Literal["login", "password"], error: OAuthError, provider: ExternalRealm | None
    ) -> tuple[Markup, int]:
        """Return the text that a page shows for a refused login, and the status of this page. Note the reason."""
        request.scope[REASON] = error.reason
        language = self.pages.get_language(request)
        refusal: LoginRefusal = "throttled" if isinstance(error, LoginThrottled) else "busy"
        if isinstance(error, InvalidGrant):
            refusal = "wrong"
        elif provider is not None and error.reason.startswith("provider_"):
            return language.text("login.error_provider", provider=provider.label), error.status
        seconds = error.retry_after_seconds or 1
        wait = language.duration(1000 * (seconds if seconds <= 60 else -(-seconds // 60) * 60))  # whole minutes
        return language.text(f"{page}.error_{refusal}", wait=wait), 200 if refusal == "wrong" else error.status

    async def recheck_client(self, request: Request, wanted: AuthorizationRequest, scope: str) -> Client:
        """Return the client of the wanted request as it is registered now. Raises what `recheck_registration` raises.

        Pages may lead back to the client from then on.
        """
        async with self.logins.seed_keeper.required():
            client = recheck_registration(wanted, scope, await self.clients.find(wanted.client_id))
        self.pages.offer_way_back(request, client, wanted.return_address)
        return client

    def open_login(self, request: Request, place: Place, sealed: str) -> tuple[PendingLogin, str]:
        """Return the pending login and the secret of this browser, and use the login's language.

        Raises PageRefusal if the text is not ours, or belongs to another browser.
        """
        login = self.pending_logins.open(place, sealed)
        if login is None:
            raise PageRefusal("expired", "login_expired")
        if login.request is not None:
            self.pages.use_language(request, login.request.language)
        browser_secret = self.browsers.find_secret(request)
        if browser_secret is None or digest_token(browser_secret) != login.browser_digest:
            raise PageRefusal("forged" if place == FORM else "astray", "login_of_another_browser")
        return login, browser_secret

    async def start_session(
        self,
        request: Request,
        authorization_request: AuthorizationRequest | None,
        login: Login,
        *,
        remember_me: bool,
        path: str = "/sessions/",
    ) -> Response | None:
        """Start a browser session under a new id, which prevents session fixation, and redirect the browser.

        Redirects to the consent page, or to `path` if there is no authorization request. Returns None if the user's
        record changed since the check of the login, or the user's sessions were revoked since it began.
        """
        user = login.user
        session = make_browser_session(user.identity.shard)
        lifetime_ms = self.settings.stay_signed_in_ttl_ms if remember_me else self.settings.login_session_ttl_ms
        former = self.browsers.find_session_token(request)
        browser_name = name_browser(request.headers.get("user-agent", ""))
        if not await self.browser_sessions.start(
            session, login, lifetime_ms=lifetime_ms, browser_name=browser_name, former=former
        ):
            self.users.forget(user.identity)
            return None
        client_id = authorization_request.client_id if authorization_request else ""
        record_user_event(request, "login_succeeded", user, client_id=client_id)
        if authorization_request is None:
            response = self.pages.redirect(path)
        else:
            response = await self._redirect_to_consent(request, authorization_request, session, user)
        if former is not None:
            await self.browser_sessions.end(former)
        self.browsers.set_session_cookie(response, session, lifetime_ms // 1000 if remember_me else None)
        return response

    async def _redirect_to_consent(
        self, request: Request, authorization_request: AuthorizationRequest, session: RandomToken, user: User
    ) -> Response:
        """Redirect to the consent page.

        If the user has none of the requested roles, redirects to the client with an error.
        """
        client_id = authorization_request.client_id
        try:
            with recording_login(request, realm=user.realm, client_id=client_id, user=user):
                consent_request = make_consent_request(authorization_request, user.realm, user.roles)
        except AccessDenied as error:
            return self.pages.refuse_client(request, authorization_request.return_address, error)
        name = await self.hold_consent(consent_request, session)
        return self.pages.redirect(f"/authorization/consent?request={name.text}")

    async def hold_consent(self, consent_request: ConsentRequest, session: RandomToken) -> RandomToken:
        """Store the consent request under a new name in the user's shard.

        A party that knows the name of the pending login does not know the new name.
        """
        name = make_consent(session.shard)
        if not await self.consents.hold(name, session, consent_request):
            raise PageRefusal("signed_out", "browser_session_over")
        return name
