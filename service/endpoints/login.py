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
from service.endpoints.external_login import ExternalLoginEndpoint
from service.endpoints.forms import find_in_query, read_form
from service.endpoints.page_limit import PageLimit
from service.endpoints.pages import Pages, Refusal, find_form_targets, troubles_answering_to
from service.endpoints.recording import recording_login
from service.endpoints.sign_in import SignIn
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
from service.protocol.scope import MAIN_REALM
from service.realms.external import ExternalRealm
from service.realms.logins import Logins
from service.registry.cache import ClientCache
from service.store.deadline import StoreUnavailable
from service.store.pending_logins import PendingLogin, PendingLogins
from service.tokens import RandomToken, digest_token, make_pending_login, parse_pending_login

LOGIN_PARAMETERS: Final = frozenset({"request", "csrf", "realm", "username", "password", "stay"})


class LoginForm(NamedTuple):
    """A page that waits for a login: what it is for, under which name, in which browser, and where one may log in."""

    name: RandomToken
    browser_secret: str
    request: AuthorizationRequest | None
    client: Client | None
    has_passwords: bool
    organisations: Sequence[ExternalRealm]
    afresh: bool

    @property
    def only_organisation(self) -> ExternalRealm | None:
        """Where there is nothing to choose and nothing to type here."""
        return self.organisations[0] if len(self.organisations) == 1 and not self.has_passwords else None

    def find_organisation(self, realm: str | None) -> ExternalRealm | None:
        return next((organisation for organisation in self.organisations if organisation.name == realm), None)


@dataclass(frozen=True, slots=True)
class LoginEndpoint:
    pages: Pages
    browsers: Browsers
    clients: ClientCache
    logins: Logins
    page_limit: PageLimit
    pending_logins: PendingLogins
    external: ExternalLoginEndpoint
    sign_in: SignIn

    async def get(self, request: Request) -> Response:
        form = await self._find_form(request, find_in_query(request, "request"))
        if form is None:
            raise Refusal("expired", "login_expired")
        if form.only_organisation is not None:
            # Each way there is kept, and this address can be opened any number of times.
            await self.page_limit.count(request)
        return await self._show(request, form)

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
        self,
        request: Request,
        asked: AuthorizationRequest | None,
        client: Client | None,
        *,
        afresh: bool = False,
        notice: str | None = None,
    ) -> Response:
        """A login page for what is asked; without that the user wants to see their own sessions.

        `afresh`: somebody else than the last user is to log in.
        """
        form = await self._make_form(request, asked, client, afresh=afresh)
        await self.page_limit.count(request)
        if form.only_organisation is None:
            await self._keep(form)
        response = await self._show(request, form, notice=notice)
        self.browsers.put_secret(response, form.browser_secret)
        return response

    async def offer_next(self, request: Request, asked: AuthorizationRequest) -> Response:
        """The way to such a page, after a form, for somebody else than the last user."""
        form = await self._make_form(request, asked, await self.clients.find(asked.client_id), afresh=True)
        await self.page_limit.count(request)
        await self._keep(form)
        response = self.pages.go_to(f"/authorization/login?request={form.name.text}")
        self.browsers.put_secret(response, form.browser_secret)
        return response

    async def _make_form(
        self, request: Request, asked: AuthorizationRequest | None, client: Client | None, *, afresh: bool
    ) -> LoginForm:
        browser_secret = self.browsers.find_secret(request) or make_browser_secret()
        return await self._open(make_pending_login(), browser_secret, asked, client, afresh=afresh)

    async def _keep(self, form: LoginForm) -> None:
        login = PendingLogin(browser_digest=digest_token(form.browser_secret), request=form.request, afresh=form.afresh)
        await self.pending_logins.keep(form.name, login)

    async def _find_form(self, request: Request, text: str) -> LoginForm | None:
        """None where the page is too old; a page that is another browser's is refused."""
        name = parse_pending_login(text)
        login = await self.pending_logins.find(name) if name else None
        if name is None or login is None:
            return None
        browser_secret = self.browsers.find_bound_secret(request, login.browser_digest)
        if browser_secret is None:
            raise Refusal("forged", "login_of_another_browser")
        client = None
        if login.request is not None:
            client = await self.clients.find(login.request.client_id)
            client = check_registration_still(login.request, login.request.scope, client)
        return await self._open(name, browser_secret, login.request, client, afresh=login.afresh)

    async def _open(
        self,
        name: RandomToken,
        browser_secret: str,
        asked: AuthorizationRequest | None,
        client: Client | None,
        *,
        afresh: bool,
    ) -> LoginForm:
        realms: Sequence[str] = await self.logins.find_realm_names()
        if asked is not None and client is not None:
            with answering_to(asked.return_address):
                realms = find_open_realms(asked, client, realms)
        organisations = [await self.logins.find_organisation(realm) for realm in realms if realm != MAIN_REALM]
        return LoginForm(name, browser_secret, asked, client, MAIN_REALM in realms, organisations, afresh)

    async def _show(self, request: Request, form: LoginForm, *, notice: str | None = None) -> Response:
        """The page, or at once the way to the organisation where there is no other."""
        if form.only_organisation is None or form.request is None:
            return self._render(form, notice=notice)
        with troubles_answering_to(form.request.return_address):
            return await self._set_out(form, form.only_organisation)

    async def _judge(self, request: Request, form: LoginForm, fields: Form) -> Response:
        realm = fields.get("realm")
        organisation = form.find_organisation(realm)
        if organisation is None and not (form.has_passwords and realm in (None, MAIN_REALM)):
            raise Refusal("forged", "realm_not_open")
        try:
            await self.page_limit.count(request)
            if organisation is not None:
                return await self._set_out(form, organisation)
            return await self._check_password(request, form, fields)
        except (InvalidGrant, LoginThrottled, TemporarilyUnavailable) as error:
            return self._refuse(request, form, fields, error, organisation)
        except StoreUnavailable as outage:
            return self._refuse(request, form, fields, report_outage(outage))

    async def _set_out(self, form: LoginForm, organisation: ExternalRealm) -> Response:
        return await self.external.set_out(organisation, form.request, form.browser_secret, afresh=form.afresh)

    async def _check_password(self, request: Request, form: LoginForm, fields: Form) -> Response:
        if "username" not in fields or "password" not in fields:
            return self._render(form, fields, missing=True)
        username, address = fields["username"], find_throttle_address(request)
        client_id = form.request.client_id if form.request else ""
        with recording_login(request, realm=MAIN_REALM, client_id=client_id, username=username):
            if not all(is_unicode_without_line_ends(fields[name]) for name in ("username", "password")):
                raise InvalidGrant("user_unknown")
            device = await self._find_device(request, username)
            user = await self.logins.log_in(MAIN_REALM, username, fields["password"], address, device)
            response = await self.sign_in.enter(request, form.request, user, stays="stay" in fields)
            if response is None:
                raise InvalidGrant("user_changed")
        self.browsers.put_device(request, response, user)
        return response

    def _refuse(
        self,
        request: Request,
        form: LoginForm,
        fields: Form,
        error: OAuthError,
        organisation: ExternalRealm | None = None,
    ) -> Response:
        """The form again, so that nothing is lost but the password."""
        request.scope[REASON] = error.reason
        if isinstance(error, InvalidGrant):
            return self._render(form, fields, error=self.pages.text("login.error_wrong"))
        kind = "throttled" if isinstance(error, LoginThrottled) else "busy"
        text = self.pages.text(f"login.error_{kind}")
        if organisation is not None and error.reason.startswith("organisation_"):
            text = self.pages.text("login.error_organisation", organisation=organisation.label)
        response = self._render(form, fields, error=text, status=error.status)
        response.headers["Retry-After"] = str(error.retry_after_seconds)
        return response

    async def _find_device(self, request: Request, username: str) -> str:
        if not self.browsers.has_devices(request):
            return ""
        user = await self.logins.find_user(MAIN_REALM, username)
        return "" if user is None else self.browsers.find_device(request, user)

    def _render(
        self,
        form: LoginForm,
        fields: Form | None = None,
        *,
        error: str | None = None,
        missing: bool = False,
        notice: str | None = None,
        status: int = 200,
    ) -> Response:
        fields = fields or {}
        return self.pages.render(
            "login.html",
            status=status,
            form_targets=_find_form_targets(form),
            action=f"{self.pages.web_path}/authorization/login",
            request_id=form.name.text,
            csrf=self.browsers.sign_form("login", form.browser_secret, form.name.text),
            client_name=(form.client.client_name or form.client.client_id) if form.client else None,
            username=fields.get("username", ""),
            stay="stay" in fields,
            notice=self.pages.text(f"login.notice_{notice}") if notice else None,
            error=error,
            username_error=self.pages.text("login.username_missing") if missing and "username" not in fields else None,
            password_error=self.pages.text("login.password_missing") if missing and "password" not in fields else None,
            has_passwords=form.has_passwords,
            organisations=form.organisations,
        )


def _find_form_targets(form: LoginForm) -> str:
    if form.request is not None:
        return find_form_targets(form.request.return_address.redirect_uri)
    return find_form_targets() if form.organisations else ""
