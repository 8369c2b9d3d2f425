"""The end of a login in any realm: a new browser session, and a redirect to what the person came for.

Clauses: RFC 6749 §10.2, RFC 6819 §4.4.1.8, SPEC §4.1, §5.2
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from service.config.settings import Settings
from service.crypto.opaque_tokens import make_browser_session
from service.protocol.authorization import AuthorizationRequest
from service.protocol.user import User
from service.registry.cache import UserCache
from service.store.browser_sessions import BrowserSessions
from service.web.pages.consent import ConsentEndpoint
from service.web.pages.cookies import BrowserCookies
from service.web.pages.page import Pages
from service.web.request.security_events import record_request_event


@dataclass(frozen=True, slots=True)
class BrowserLogin:
    pages: Pages
    browsers: BrowserCookies
    users: UserCache
    browser_sessions: BrowserSessions
    consent: ConsentEndpoint
    settings: Settings

    async def start_session(
        self,
        request: Request,
        authorization_request: AuthorizationRequest | None,
        user: User,
        *,
        remember_me: bool,
        shown_name: str = "",
        path: str = "/sessions/",
    ) -> Response | None:
        """Start a browser session under a new id, which prevents session fixation, and redirect the browser.

        Redirects to the consent page, or to `path` if there is no authorization request. Returns None if the user's
        record changed since the check of the login.
        """
        session = make_browser_session(user.identity.shard)
        lifetime_ms = self.settings.stay_signed_in_ttl_ms if remember_me else self.settings.login_session_ttl_ms
        former = self.browsers.find_session_token(request)
        if not await self.browser_sessions.start(
            session, user, lifetime_ms=lifetime_ms, former=former, shown_name=shown_name
        ):
            self.users.forget(user.identity)
            return None
        client_id = authorization_request.client_id if authorization_request else ""
        record_request_event(request, "login_succeeded", client_id=client_id, username=user.username, realm=user.realm)
        if authorization_request is None:
            response = self.pages.redirect(path)
        else:
            response = await self.consent.redirect_to_consent(request, authorization_request, session, user)
        if former is not None:
            await self.browser_sessions.end(former)
        self.browsers.set_session_cookie(response, session, lifetime_ms // 1000 if remember_me else None)
        return response
