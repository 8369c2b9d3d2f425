"""GET /authorization/callback, to which a browser returns from an identity provider.

The login travels as `state`. It is sealed, bound to the browser that started it, and good for one return. The nonce and
the code_verifier are derived from `state` with the browser's own secret. Neither Redis nor the identity provider nor a
reader of the URL can derive them.

Clauses: RFC 6749 §4.1.1, §4.1.2, §4.1.2.1, §10.12, RFC 6819 §4.4.1.8, RFC 7636 §4.1, RFC 9207 §2.4, SPEC §2.2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from service.crypto.keyring import derive_from_browser
from service.gateway.outage_log import report_outage
from service.protocol.authorization import AuthorizationRefused, Query, parse_query
from service.protocol.errors import AccessDenied, OAuthError
from service.protocol.provider_responses import CALLBACK_PARAMETERS, make_unavailable
from service.realms.external import LoginBinding
from service.redis_client.deadline import StoreUnavailable
from service.web.pages.page import PageRefusal, check_is_page, redirecting_all_errors_to
from service.web.pages.pending_logins import PROVIDER, PendingLogin
from service.web.pages.steps import PageSteps
from service.web.request.client_address import get_prefixes
from service.web.request.security_events import recording_login
from service.web.request.state import REASON

_NOTICES: Final = {
    "provider_denied": "login_denied",
    "user_not_admitted": "login_not_admitted",
    "email_not_verified": "login_not_admitted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackPage(PageSteps):
    async def get(self, request: Request) -> Response:
        """Finish the login of a browser that returns.

        The browser is checked first: another browser can neither log in nor use up the login.
        """
        check_is_page(request)
        if request.method == "HEAD":  # HEAD would use up the login without a page for the person
            raise PageRefusal("forged", "not_asked_for_as_a_page")
        answer = parse_query(request.scope["query_string"], CALLBACK_PARAMETERS)
        state = "" if "state" in answer.mistakes else answer.values.get("state", "")
        login = self.pending_logins.open(PROVIDER, state)
        if login is None:
            raise PageRefusal("expired", "external_login_unknown")
        if login.request is not None:
            self.pages.use_language(request, login.request.language)
        browser_secret = self.browsers.find_bound_secret(request, login.browser_digest)
        if browser_secret is None:
            raise PageRefusal("astray", "external_login_of_another_browser")
        await self._note_return(state, login)
        binding = derive_binding(state, browser_secret)
        if login.request is None:
            return await self._return_to_sessions(request, login, answer, binding)
        authorization_request = login.request
        try:
            await self.recheck_client(authorization_request, authorization_request.scope)
            with redirecting_all_errors_to(authorization_request.return_address):
                response = await self._log_in(request, login, answer, binding)
        except AuthorizationRefused as refused:
            response = self.pages.refuse_client(request, refused.return_address, refused.error)
        return self.pages.show_link(request, response)

    async def _note_return(self, state: str, login: PendingLogin) -> None:
        await self.logins.list_realm_names()  # this read gives the worker the time of Redis
        time_left_ms = self.pending_logins.find_time_left_ms(login)
        if time_left_ms is None:
            raise PageRefusal("expired", "external_login_unknown")
        if not await self.external_logins.take(state, time_left_ms):
            raise PageRefusal("expired", "external_login_repeated")

    async def _return_to_sessions(
        self, request: Request, login: PendingLogin, answer: Query, binding: LoginBinding
    ) -> Response:
        """Finish a login that leads to /sessions/. If it fails, the login page shows the reason.

        No client waits for a response.
        """
        try:
            return await self._log_in(request, login, answer, binding)
        except StoreUnavailable as outage:
            error: OAuthError = report_outage(outage)
        except OAuthError as refusal:
            error = refusal
        request.scope[REASON] = error.reason
        return self.pages.redirect(
            self.browsers.make_notice(request, "/sessions/", _NOTICES.get(error.reason, "login_failed"))
        )

    async def _log_in(self, request: Request, login: PendingLogin, answer: Query, binding: LoginBinding) -> Response:
        realm = await self.logins.get_external_realm(login.realm)
        if realm.provider.fingerprint != login.provider:
            # The realm has another identity provider now, which must not receive the code of the former one.
            raise make_unavailable()
        client_id = login.request.client_id if login.request else ""
        with recording_login(request, realm=login.realm, client_id=client_id):
            async with self.logins.limiting_refusals(login.realm, get_prefixes(request)):
                user, shown_name = await realm.finish(answer, binding, self.callback_address)
            response = await self.start_session(request, login.request, user, remember_me=False, shown_name=shown_name)
            if response is None:
                raise AccessDenied("user_not_admitted")
        return response


def derive_binding(state: str, browser_secret: str) -> LoginBinding:
    return LoginBinding(
        state=state,
        nonce=derive_from_browser(browser_secret, "nonce", state),
        code_verifier=derive_from_browser(browser_secret, "code verifier", state),
    )
