"""GET /authorization/, where a client sends the user's browser, /authorization/login, and the way back from a provider.

A login continues to the consent page or to /sessions/.

Clauses: RFC 6749 §3.1, §4.1.1, §4.1.2, §4.1.2.1, §10.2, §10.12, RFC 6819 §4.4.1.8, §5.1.4.2.3, RFC 7636 §4.1, RFC 9207
§2.4, SPEC §2.2, §4.1, §5.2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from service.crypto.keyring import derive_from_browser, make_browser_secret
from service.gateway.outage_log import report_outage
from service.protocol import authorization
from service.protocol.authorization import AuthorizationRequest, Query, make_query
from service.protocol.client import Client
from service.protocol.errors import (
    AccessDenied,
    InvalidGrant,
    LoginThrottled,
    OAuthError,
    TemporarilyUnavailable,
)
from service.protocol.grammar import is_unicode_without_line_ends
from service.protocol.parameters import Form
from service.protocol.provider_responses import CALLBACK_PARAMETERS, make_unavailable
from service.protocol.scope import MAIN_REALM
from service.protocol.token_form import digest_token
from service.protocol.user import identify_user
from service.realms.external import ExternalRealm, LoginBinding
from service.redis_client.deadline import StoreUnavailable
from service.store.browsers.browser_sessions import BrowserSession
from service.store.single_use import make_state_key
from service.web.pages.consent import ConsentPages
from service.web.pages.cookies import Notice
from service.web.pages.page import (
    PageRefusal,
    add_retry_after,
    check_is_page,
    redirecting_all_errors_to,
)
from service.web.pages.pending_logins import FORM, PROVIDER, PendingLogin
from service.web.pages.steps import PageSteps
from service.web.request.client_address import get_prefixes
from service.web.request.reading import read_form
from service.web.request.security_events import recording_login
from service.web.request.state import CLIENT_ID, REASON

LOGIN_PARAMETERS: Final = frozenset({"request", "realm", "username", "password", "stay"})


class LoginForm(NamedTuple):
    """A pending login page: its purpose, its browser, and the realms that it offers.

    `sealed` is the same content as the HTML form carries it. It also proves that the form came from one of our pages in
    this browser.
    """

    login: PendingLogin
    sealed: str
    browser_secret: str
    client: Client | None
    has_passwords: bool
    providers: Sequence[ExternalRealm]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationPages(PageSteps):
    consent: ConsentPages

    async def redirect_with_slash(self, request: Request) -> Response:
        """Redirect to /authorization/ with the query. Some clients leave out the last slash."""
        query = request.scope["query_string"].decode("latin-1")
        return self.pages.redirect_elsewhere(f"{self.pages.web_path}/authorization/?{query}", 308)

    async def get(self, request: Request) -> Response:
        """Answer an authorization request with a page or a redirect.

        The client and its redirect_uri are checked first: no redirect is allowed before both are verified.

        Clauses: RFC 6749 §4.1.2.1, SPEC §7.3, §7.4
        """
        check_is_page(request)
        query = authorization.parse_query(request.scope["query_string"])
        language = self.pages.choose_language(request, query.values.get("ui_locales", ""))
        client_id = authorization.read_client_id(query)
        async with self.logins.seed_keeper.required():
            client = authorization.require_registered(await self.clients.find(client_id))
        request.scope[CLIENT_ID] = client.client_id
        return_address = authorization.verify_return_address(query, client)
        self.pages.offer_way_back(request, client, return_address)
        with redirecting_all_errors_to(return_address):
            authorization_request = authorization.parse_authorization_request(query, client, return_address, language)
            realms = await self.logins.list_open_realms(authorization_request, client)
            max_login_age_ms = authorization.read_max_login_age_ms(query)
            return await self._continue(request, authorization_request, client, realms, max_login_age_ms)

    async def _continue(
        self,
        request: Request,
        authorization_request: AuthorizationRequest,
        client: Client,
        realms: Sequence[str],
        max_login_age_ms: int | None,
    ) -> Response:
        """Return the consent page if the browser session satisfies the request, or else the login page.

        Consent is always asked for. If the user of the session cannot grant the request, the client gets no error yet:
        the person may have another account. An immediate redirect would also reveal to the client which users the
        person is not.

        The login page then forces a login, because an identity provider would otherwise return the same user. It also
        does so if the request limits the age of the login, because the login at the identity provider may be older.
        """
        force_login = max_login_age_ms is not None
        unusable = None
        session = await self.find_session(request)
        if session is not None and await self._is_recent(session, max_login_age_ms):
            user = await self.logins.find_user(session.record.realm, session.record.username)
            force_login |= user is None
            if user is not None:
                try:
                    if user.realm in realms:
                        return await self.consent.ask(request, authorization_request, client, session, user)
                    unusable = session
                except AccessDenied:
                    force_login, unusable = True, session
                except PageRefusal:
                    pass  # the session has ended, or an interrupted revokeAll covers it and has not deleted it yet
        return await self.show_login(request, authorization_request, client, force_login=force_login, unusable=unusable)

    async def _is_recent(self, session: BrowserSession, max_login_age_ms: int | None) -> bool:
        """Return True if the session's login is at most this old. 0 counts as too old for every login."""
        if not max_login_age_ms:
            return max_login_age_ms is None
        return await self.families.read_clock_ms() - session.record.created_ms <= max_login_age_ms

    async def get_login(self, request: Request) -> Response:
        """Raise PageRefusal, whose page asks the person to start again: this address takes submitted forms only."""
        raise PageRefusal("expired", "login_expired")

    async def show_login(
        self,
        request: Request,
        authorization_request: AuthorizationRequest | None,
        client: Client | None,
        *,
        force_login: bool = False,
        notice: Notice | None = None,
        unusable: BrowserSession | None = None,
    ) -> Response:
        """Return a login page, or a redirect to the identity provider if that is the only way to log in.

        Without an authorization request, the login leads to /sessions/. `force_login` is True if the user must log in
        again, or another user than the last one will log in. `unusable` is the session of an account that the client
        cannot use. The page then tells the person so, also if there is only one way to log in.
        """
        await self.count_page(request)
        browser_secret = self.browsers.find_secret(request) or make_browser_secret()
        digest = digest_token(browser_secret)
        login = PendingLogin(browser_digest=digest, request=authorization_request, force_login=force_login)
        form = await self._open(login, browser_secret, client)
        if authorization_request is not None and not unusable and len(form.providers) == 1 and not form.has_passwords:
            with redirecting_all_errors_to(authorization_request.return_address):
                response = await self._redirect_to_provider(form, form.providers[0])
        else:
            response = self._render(request, form, notice=notice, unusable=unusable)
        self.browsers.set_browser_cookie(response, browser_secret)
        return response

    async def _open(
        self, login: PendingLogin, browser_secret: str, client: Client | None, sealed: str = ""
    ) -> LoginForm:
        """Return the form of a login, which is sealed here unless it already was.

        This reads the registry first, and so gives the worker the time of Redis.
        """
        if login.request is None or client is None:
            realms: Sequence[str] = await self.logins.list_realm_names()
        else:
            with authorization.redirecting_oauth_errors_to(login.request.return_address):
                realms = await self.logins.list_open_realms(login.request, client)
        providers = [await self.logins.get_external_realm(realm) for realm in realms if realm != MAIN_REALM]
        sealed = sealed or self.pending_logins.seal(FORM, login)
        return LoginForm(login, sealed, browser_secret, client, MAIN_REALM in realms, providers)

    async def log_in(self, request: Request) -> Response:
        """Handle a submitted login form. A form that is not from this browser has no effect.

        If the login is refused, the form is shown again. All fields keep their values, but for the password.
        """
        fields = await read_form(request, LOGIN_PARAMETERS)
        form = await self._get_form(request, fields.get("request", ""))
        realm = fields.get("realm")
        provider = next((each for each in form.providers if each.name == realm), None)
        if provider is None and not (form.has_passwords and realm in (None, MAIN_REALM)):
            raise PageRefusal("forged", "realm_not_open")
        try:
            await self.count_page(request)
            if provider is not None:
                return await self._redirect_to_provider(form, provider)
            return await self._log_in_with_password(request, form, fields)
        except (InvalidGrant, LoginThrottled, TemporarilyUnavailable, StoreUnavailable) as problem:
            error = problem if isinstance(problem, OAuthError) else report_outage(problem)
        message, status = self.describe_refusal(request, "login", error, provider)
        return add_retry_after(self._render(request, form, fields, error=message, status=status), error)

    async def _get_form(self, request: Request, sealed: str) -> LoginForm:
        """Return the form that this browser sent. Raises PageRefusal if it is too old or another browser's."""
        login, browser_secret = self.open_login(request, FORM, sealed)
        client = None
        if login.request is not None:
            client = await self.recheck_client(request, login.request, login.request.scope)
        form = await self._open(login, browser_secret, client, sealed)
        if self.pending_logins.find_time_left_ms(login) is None:
            raise PageRefusal("expired", "login_expired")
        return form

    async def _redirect_to_provider(self, form: LoginForm, realm: ExternalRealm) -> Response:
        """Redirect to the identity provider. The browser holds the secret, or receives it with this response.

        Clauses: RFC 6749 §4.1.1
        """
        login = msgspec.structs.replace(
            form.login,
            realm=realm.name,
            provider=realm.provider.fingerprint,
            begun_ms=await self.families.read_clock_ms(),
        )
        state = self.pending_logins.seal(PROVIDER, login)
        address = await realm.make_authorization_address(
            derive_binding(state, form.browser_secret), self.callback_address, force_login=form.login.force_login
        )
        return self.pages.redirect_elsewhere(address)

    async def _log_in_with_password(self, request: Request, form: LoginForm, fields: Form) -> Response:
        if "username" not in fields or "password" not in fields:
            return self._render(request, form, fields, missing=True)
        username = fields["username"]
        client_id = form.login.request.client_id if form.login.request else ""
        with recording_login(request, realm=MAIN_REALM, client_id=client_id):
            if not all(is_unicode_without_line_ends(fields[name]) for name in ("username", "password")):
                raise InvalidGrant("user_unknown")
            device = await self.get_device(request, username)
            prefixes = get_prefixes(request)
            login = await self.logins.log_in(MAIN_REALM, username, fields["password"], prefixes, device)
            response = await self.start_session(request, form.login.request, login, remember_me="stay" in fields)
            if response is None:
                raise TemporarilyUnavailable("record_changed", retry_after_seconds=1)
        self.browsers.set_device_cookie(request, response, login.user)
        return response

    async def get_device(self, request: Request, username: str) -> str:
        """Return the name of this browser if this user of realm main was the last to log in here, or an empty text.

        The user is read from Redis and not from this worker's cache, which holds existing users only. An unknown name
        therefore costs as much as a known one.
        """
        if not self.browsers.has_device(request):
            return ""
        identity = identify_user(MAIN_REALM, username)
        user = await self.registry.users.find(identity)
        return self.browsers.get_device(request, identity, user.revision if user else "")

    def _render(
        self,
        request: Request,
        form: LoginForm,
        fields: Form | None = None,
        *,
        error: str | None = None,
        missing: bool = False,
        notice: Notice | None = None,
        unusable: BrowserSession | None = None,
        status: int = 200,
    ) -> Response:
        fields = fields or {}
        text = self.pages.get_language(request).text
        return self.pages.render(
            request,
            "login.html",
            status=status,
            may_leave=form.login.request is not None or bool(form.providers),
            sealed=form.sealed,
            client_name=(form.client.client_name or form.client.client_id) if form.client else None,
            username=fields.get("username", ""),
            remember_me="stay" in fields,
            notice=text(f"login.notice_{notice}") if notice else None,
            account=unusable and unusable.record,
            error=error,
            username_error=text("login.username_missing") if missing and "username" not in fields else None,
            password_error=text("login.password_missing") if missing and "password" not in fields else None,
            has_passwords=form.has_passwords,
            providers=form.providers,
        )


_NOTICES: Final[dict[str, Notice]] = {
    "provider_denied": "login_denied",
    "user_not_admitted": "login_not_admitted",
    "email_not_verified": "login_not_admitted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackPage(PageSteps):
    """GET /authorization/callback, to which a browser returns from an identity provider.

    The login travels as `state`. It is sealed, bound to the browser that started it, and good for one return. The nonce
    and the code_verifier are derived from `state` with the browser's own secret. Neither Redis nor the identity
    provider nor a reader of the URL can derive them.
    """

    async def get(self, request: Request) -> Response:
        """Finish the login of a browser that returns.

        The browser is checked first: another browser can neither log in nor use up the login.
        """
        check_is_page(request)
        if request.method == "HEAD":  # HEAD would use up the login without a page for the person
            raise PageRefusal("forged", "not_asked_for_as_a_page")
        answer = authorization.parse_query(request.scope["query_string"], CALLBACK_PARAMETERS)
        state = "" if "state" in answer.mistakes else answer.values.get("state", "")
        login, browser_secret = self.open_login(request, PROVIDER, state)
        await self._note_return(state, login)
        binding = derive_binding(state, browser_secret)
        if login.request is None:
            return await self._return_to_sessions(request, login, answer, binding)
        await self.recheck_client(request, login.request, login.request.scope)
        with redirecting_all_errors_to(login.request.return_address):
            return await self._log_in(request, login, answer, binding)

    async def _note_return(self, state: str, login: PendingLogin) -> None:
        await self.logins.list_realm_names()  # this read gives the worker the time of Redis
        time_left_ms = self.pending_logins.find_time_left_ms(login)
        if time_left_ms is None:
            raise PageRefusal("expired", "login_expired")
        if not await self.single_use.take(make_state_key(state), time_left_ms):
            raise PageRefusal("expired", "external_login_repeated")

    async def _return_to_sessions(
        self, request: Request, login: PendingLogin, answer: Query, binding: LoginBinding
    ) -> Response:
        """Finish a login that leads to /sessions/. If it fails, the login page shows the reason.

        No client waits for a response.
        """
        try:
            return await self._log_in(request, login, answer, binding)
        except (OAuthError, StoreUnavailable) as problem:
            error = problem if isinstance(problem, OAuthError) else report_outage(problem)
        request.scope[REASON] = error.reason
        notice = _NOTICES.get(error.reason, "login_failed")
        return self.pages.redirect(self.browsers.make_notice(request, notice))

    async def _log_in(self, request: Request, login: PendingLogin, answer: Query, binding: LoginBinding) -> Response:
        realm = await self.logins.get_external_realm(login.realm)
        if realm.provider.fingerprint != login.provider:
            # The realm has another identity provider now, which must not receive the code of the former one.
            raise make_unavailable()
        client_id = login.request.client_id if login.request else ""
        with recording_login(request, realm=login.realm, client_id=client_id):
            async with self.logins.limiting_refusals(login.realm, get_prefixes(request)):
                checked = await realm.finish(answer, binding, self.callback_address, login.begun_ms)
            response = await self.start_session(request, login.request, checked, remember_me=False)
        again = "/sessions/"
        if login.request:
            again = f"/authorization/?{make_query(login.request, force_login=login.force_login)}"
        return response or self.pages.redirect(again)


def derive_binding(state: str, browser_secret: str) -> LoginBinding:
    return LoginBinding(
        state=state,
        nonce=derive_from_browser(browser_secret, "nonce", state),
        code_verifier=derive_from_browser(browser_secret, "code verifier", state),
    )
