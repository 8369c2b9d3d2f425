"""GET and POST /authorization/login: a person proves who they are, and goes on to what they came for.

Clauses: RFC 6749 §3.1, §10.2, §10.12, RFC 6819 §5.1.4.2.3, SPEC §4.1, §5.2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from service.credentials import make_browser_secret
from service.endpoints.addresses import find_throttle_address
from service.endpoints.answers import REASON
from service.endpoints.browser import Browsers
from service.endpoints.consent import ConsentEndpoint
from service.endpoints.forms import read_form
from service.endpoints.page_limit import PageLimit
from service.endpoints.pages import Pages, Refusal, find_form_targets
from service.outage import report_outage
from service.protocol.authorization import (
    AuthorizationRequest,
    answering_to,
    check_registration_still,
    find_open_realms,
)
from service.protocol.client import Client
from service.protocol.errors import InvalidGrant, LoginThrottled, OAuthError, TemporarilyUnavailable
from service.protocol.grammar import is_unicode_without_line_ends
from service.protocol.parameters import Form
from service.protocol.user import User
from service.realms.logins import Logins
from service.registry.cache import RegistryCache
from service.store.browser_sessions import BrowserSessions
from service.store.connection import StoreUnavailable
from service.store.pending_logins import PendingLogin, PendingLogins
from service.tokens import RandomToken, digest_token, make_browser_session, make_pending_login, parse_pending_login

LOGIN_PARAMETERS: Final = frozenset({"request", "csrf", "realm", "username", "password", "stay"})


class LoginForm(NamedTuple):
    """A page that waits for a login: what it is for, under which name, in which browser, and where one may log in."""

    name: RandomToken
    browser_secret: str
    request: AuthorizationRequest | None
    client: Client | None
    realms: Sequence[str]


class RealmChoice(NamedTuple):
    name: str
    label: str
    checked: bool


@dataclass(frozen=True, slots=True)
class LoginEndpoint:
    pages: Pages
    browsers: Browsers
    clients: RegistryCache[Client | None]
    logins: Logins
    page_limit: PageLimit
    pending_logins: PendingLogins
    browser_sessions: BrowserSessions
    consent: ConsentEndpoint
    session_ms: int
    stay_ms: int

    async def get(self, request: Request) -> Response:
        form = await self._find_form(request, request.query_params.get("request", ""))
        if form is None:
            raise Refusal("expired", "login_expired")
        return self._render(form)

    async def post(self, request: Request) -> Response:
        """A form that is not from this browser is never acted on."""
        fields = await read_form(request, LOGIN_PARAMETERS)
        form = await self._find_form(request, fields.get("request", ""))
        if form is None:
            raise Refusal("expired", "login_expired")
        if not self.browsers.recognises_form(fields.get("csrf", ""), "login", form.browser_secret, form.name.text):
            raise Refusal("forged", "login_form_forged")
        return await self._judge(request, form, fields)

    async def offer(
        self, request: Request, asked: AuthorizationRequest | None, client: Client | None, *, notice: str | None = None
    ) -> Response:
        """A login page for what is asked; without that the user wants to see their own sessions."""
        form = await self._keep(request, asked, client)
        response = self._render(form, notice=notice)
        self.browsers.put_secret(response, form.browser_secret)
        return response

    async def offer_next(self, request: Request, asked: AuthorizationRequest) -> Response:
        """The way to such a page, after a form."""
        form = await self._keep(request, asked, await self.clients.find(asked.client_id))
        response = self.pages.go_to(f"/authorization/login?request={form.name.text}")
        self.browsers.put_secret(response, form.browser_secret)
        return response

    async def _keep(self, request: Request, asked: AuthorizationRequest | None, client: Client | None) -> LoginForm:
        browser_secret = self.browsers.find_secret(request) or make_browser_secret()
        form = LoginForm(make_pending_login(), browser_secret, asked, client, self._find_realms(asked, client))
        await self.page_limit.count(request)
        await self.pending_logins.keep(
            form.name, PendingLogin(browser_digest=digest_token(browser_secret), request=asked)
        )
        return form

    async def _find_form(self, request: Request, text: str) -> LoginForm | None:
        """None where the page is too old; a page that is another browser's is refused."""
        name = parse_pending_login(text)
        login = await self.pending_logins.find(name) if name else None
        if name is None or login is None:
            return None
        browser_secret = self.browsers.find_secret(request)
        if browser_secret is None or digest_token(browser_secret) != login.browser_digest:
            raise Refusal("forged", "login_of_another_browser")
        client = None
        if login.request is not None:
            client = await self.clients.find(login.request.client_id)
            client = check_registration_still(login.request, login.request.scope, client)
        return LoginForm(name, browser_secret, login.request, client, self._find_realms(login.request, client))

    def _find_realms(self, asked: AuthorizationRequest | None, client: Client | None) -> Sequence[str]:
        if asked is None or client is None:
            return self.logins.realm_names
        with answering_to(asked.return_address):
            return find_open_realms(asked, client, self.logins.realm_names)

    async def _judge(self, request: Request, form: LoginForm, fields: Form) -> Response:
        realm = fields.get("realm", form.realms[0])
        if realm not in form.realms:
            raise Refusal("forged", "realm_not_open")
        if "username" not in fields or "password" not in fields:
            return self._render(form, fields, missing=True)
        if not all(is_unicode_without_line_ends(fields[name]) for name in ("username", "password")):
            return self._refuse(request, form, fields, InvalidGrant("user_unknown"))
        username = fields["username"]
        address = find_throttle_address(request)
        try:
            await self.page_limit.count(request)
            device = await self._find_device(request, realm, username)
            user = await self.logins.log_in(realm, username, fields["password"], address, device)
            return await self._enter(request, form, fields, user)
        except (InvalidGrant, LoginThrottled, TemporarilyUnavailable) as error:
            return self._refuse(request, form, fields, error)
        except StoreUnavailable as outage:
            return self._refuse(request, form, fields, report_outage(outage))

    def _refuse(self, request: Request, form: LoginForm, fields: Form, error: OAuthError) -> Response:
        """The form again, so that nothing is lost but the password."""
        request.scope[REASON] = error.reason
        if isinstance(error, InvalidGrant):
            return self._render(form, fields, error="wrong")
        kind = "throttled" if isinstance(error, LoginThrottled) else "busy"
        response = self._render(form, fields, error=kind, status=error.status)
        response.headers["Retry-After"] = str(error.retry_after_seconds)
        return response

    async def _find_device(self, request: Request, realm: str, username: str) -> str:
        if not self.browsers.has_devices(request):
            return ""
        user = await self.logins.find_user(realm, username)
        return "" if user is None else self.browsers.find_device(request, user)

    async def _enter(self, request: Request, form: LoginForm, fields: Form, user: User) -> Response:
        """Under a session of a new name, whatever the browser brought along: nobody else can know it."""
        stays = "stay" in fields
        session = make_browser_session(user.identity.shard)
        lifetime_ms = self.stay_ms if stays else self.session_ms
        former = self.browsers.find_session_name(request)
        if not await self.browser_sessions.start(session, user, lifetime_ms=lifetime_ms, former=former):
            return self._refuse(request, form, fields, InvalidGrant("user_changed"))
        response = await self._go_on(request, form, session, user)
        if former is not None:
            await self.browser_sessions.end(former)
        self.browsers.put_session(response, session, lifetime_ms // 1000 if stays else None)
        self.browsers.put_device(request, response, user)
        return response

    async def _go_on(self, request: Request, form: LoginForm, session: RandomToken, user: User) -> Response:
        if form.request is None:
            return self.pages.go_to("/sessions/")
        return await self.consent.ask_next(request, form.request, session, user)

    def _render(
        self,
        form: LoginForm,
        fields: Form | None = None,
        *,
        error: str = "",
        missing: bool = False,
        notice: str | None = None,
        status: int = 200,
    ) -> Response:
        fields = fields or {}
        return self.pages.render(
            "login.html",
            status=status,
            form_targets=find_form_targets(form.request.return_address.redirect_uri) if form.request else "",
            action=f"{self.pages.web_path}/authorization/login",
            request_id=form.name.text,
            csrf=self.browsers.sign_form("login", form.browser_secret, form.name.text),
            client_name=(form.client.client_name or form.client.client_id) if form.client else None,
            username=fields.get("username", ""),
            stay="stay" in fields,
            notice=notice,
            error=self.pages.text(f"login.error_{error}") if error else None,
            username_error=self.pages.text("login.username_missing") if missing and "username" not in fields else None,
            password_error=self.pages.text("login.password_missing") if missing and "password" not in fields else None,
            realms=self._list_realms(form.realms, fields.get("realm")),
        )

    def _list_realms(self, realms: Sequence[str], chosen: str | None) -> list[RealmChoice]:
        return [
            RealmChoice(realm, self.pages.text(f"realm.{realm}"), realm == (chosen or realms[0])) for realm in realms
        ]
