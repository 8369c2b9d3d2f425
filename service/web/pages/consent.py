"""/authorization/consent, where the user sees which client requests what, and allows or denies it once.

POST /authorization/switch is the answer "not you?".

Clauses: RFC 6749 §3.1.2.1, §4.1.2, §4.1.2.1, §10.2, §10.12, RFC 6819 §5.1.3, §5.2.3.2, §5.2.4.1, §5.2.4.2, §5.2.4.3,
SPEC §4.1, §5.2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from service.protocol.authorization import (
    AuthorizationRefused,
    AuthorizationRequest,
    ConsentRequest,
    make_consent_request,
    make_query,
)
from service.protocol.client import REFRESH_TOKEN, Client
from service.protocol.errors import AccessDenied, InvalidRequest
from service.protocol.scope import MAIN_REALM, parse_scope
from service.protocol.token_form import RandomToken, parse_consent
from service.protocol.uri import is_unprotected
from service.protocol.user import User
from service.store.browsers.browser_sessions import BrowserSession
from service.store.browsers.consents import AllowAnswer, DenyAnswer
from service.web.pages.languages import Language
from service.web.pages.page import PageRefusal
from service.web.pages.steps import PageSteps
from service.web.request.reading import get_from_query, read_form
from service.web.request.security_events import record_user_event

CONSENT_PARAMETERS: Final = frozenset({"request", "csrf", "decision"})


class OpenConsent(NamedTuple):
    """A consent that this browser may answer, and the user who is asked."""

    name: RandomToken
    consent_request: ConsentRequest
    client: Client
    session: BrowserSession
    user: User


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentPages(PageSteps):
    async def get(self, request: Request) -> Response:
        return await self._render(request, await self._find(request, get_from_query(request, "request")))

    async def post(self, request: Request) -> Response:
        """Answer the consent request.

        Its content was fixed when the page was made. It is checked here against what has changed since.
        """
        fields = await read_form(request, CONSENT_PARAMETERS)
        consent = await self._find(request, fields.get("request", ""), answered_too=True)
        self._check_form(consent, fields.get("csrf", ""))
        if fields.get("decision") == "deny":
            return await self._deny(request, consent)
        if fields.get("decision") == "allow":
            return await self._allow(request, consent)
        raise InvalidRequest("parameter_missing", name="decision")

    async def ask(
        self,
        request: Request,
        authorization_request: AuthorizationRequest,
        client: Client,
        session: BrowserSession,
        user: User,
    ) -> Response:
        """Return the consent page, for a browser in which the user has logged in already.

        Raises AccessDenied if the user has none of the requested roles.
        """
        consent_request = make_consent_request(authorization_request, user.realm, user.roles)
        await self.count_page(request)
        name = await self.hold_consent(consent_request, session.name)
        return await self._render(request, OpenConsent(name, consent_request, client, session, user))

    async def switch(self, request: Request) -> Response:
        """End the browser session, and start the same authorization request again as another user."""
        fields = await read_form(request, CONSENT_PARAMETERS)
        consent = await self._find(request, fields.get("request", ""))
        self._check_form(consent, fields.get("csrf", ""))
        await self.browser_sessions.end(consent.session.name)
        query = make_query(consent.consent_request.request, force_login=True)
        response = self.pages.redirect(f"/authorization/?{query}")
        self.browsers.remove_session_cookie(response)
        return response

    async def _find(self, request: Request, text: str, *, answered_too: bool = False) -> OpenConsent:
        name, session = parse_consent(text), await self.find_session(request)
        if session is None:
            raise PageRefusal("signed_out", "browser_session_missing")
        consent = await self.consents.find(name) if name else None
        if name is None or consent is None:
            raise PageRefusal("expired", "consent_expired")
        self.pages.use_language(request, consent.consent_request.request.language)
        if consent.login != session.record.login:
            raise PageRefusal("expired", "consent_of_another_session")
        if consent.answer and not answered_too:
            raise PageRefusal("answered", "consent_answered")
        user = await self.logins.find_user(session.record.realm, session.record.username)
        if user is None:
            raise PageRefusal("signed_out", "user_without_login")
        consent_request = consent.consent_request
        client = await self.recheck_client(request, consent_request.request, consent_request.scope)
        return OpenConsent(name, consent_request, client, session, user)

    def _check_form(self, consent: OpenConsent, csrf: str) -> None:
        if not self.browsers.verify_csrf(csrf, "consent", consent.session.record.login, consent.name.text):
            raise PageRefusal("forged", "consent_form_forged")

    async def _allow(self, request: Request, consent: OpenConsent) -> Response:
        consent_request = consent.consent_request
        if not set(parse_scope(consent_request.scope).roles) <= set(consent.user.roles):
            raise PageRefusal("expired", "user_changed")
        code_name = self.keyring.derive_code(consent.name)
        answer = await self.consents.allow(consent.name, consent.session.name, consent.user, code_name, consent_request)
        if answer == "changed":
            self.users.forget(consent.user.identity)
        _check_answer(answer)
        if answer == "issued":
            _record(request, "code_issued", consent)
        return self.pages.answer_client(consent_request.request.return_address, {"code": code_name.text})

    async def _deny(self, request: Request, consent: OpenConsent) -> Response:
        answer = await self.consents.deny(consent.name, consent.session.name)
        _check_answer(answer)
        if answer == "denied":
            _record(request, "consent_denied", consent)
        raise AuthorizationRefused(consent.consent_request.request.return_address, AccessDenied("user_denied"))

    async def _render(self, request: Request, consent: OpenConsent) -> Response:
        consent_request, client, user = consent.consent_request, consent.client, consent.user
        redirect_uri = consent_request.request.return_address.redirect_uri
        csrf = self.browsers.sign_form("consent", consent.session.record.login, consent.name.text)
        provider = None if user.realm == MAIN_REALM else (await self.logins.get_external_realm(user.realm)).label
        return self.pages.render(
            request,
            "consent.html",
            may_leave=True,
            request_id=consent.name.text,
            csrf=csrf,
            client_name=client.client_name or client.client_id,
            username=user.username,
            name=user.name or consent.session.record.name,
            provider=provider,
            roles=parse_scope(consent_request.scope).roles,
            lifetime=self._describe_lifetime(self.pages.get_language(request), client),
            destination=_describe_destination(redirect_uri),
            insecure=is_unprotected(redirect_uri),
        )

    def _describe_lifetime(self, language: Language, client: Client) -> str:
        """Return, as text, how long the client keeps what the user allows, unless it is ended earlier."""
        lifetimes = self.lifetimes.of(client)
        if REFRESH_TOKEN not in client.grant_types:
            most_ms = min(lifetimes.access_token_ms, lifetimes.refresh_token_ms)
            return language.lifetime(most_ms, min(most_ms, lifetimes.session_max_age_ms or most_ms))
        return language.lifetime(lifetimes.refresh_token_ms, lifetimes.session_max_age_ms)


def _check_answer(answer: AllowAnswer | DenyAnswer) -> None:
    if answer in ("issued", "repeated", "denied"):
        return
    if answer == "signed_out":
        raise PageRefusal("signed_out", "browser_session_over")
    if answer == "answered":
        raise PageRefusal("answered", "consent_answered")
    raise PageRefusal("expired", f"consent_{answer}")


def _record(request: Request, event: str, consent: OpenConsent) -> None:
    scope, client_id = consent.consent_request.scope, consent.client.client_id
    record_user_event(request, event, consent.user, client_id=client_id, scope=scope)


def _describe_destination(redirect_uri: str) -> str:
    """Return the host of the redirect_uri, or the beginning of the address if it has an app's own scheme."""
    parts = urlsplit(redirect_uri)
    if parts.scheme in ("http", "https"):
        return parts.netloc
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else f"{parts.scheme}:"
