"""POST /sessions/password, where a user of realm main replaces the password and ends all other sessions.

The check of the current password is a login: it has the same limits, security events and threads.

Clauses: RFC 6749 §10.10, §10.12, RFC 6819 §4.4.1.8, §5.1.4.2.3, SPEC §3
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from service.crypto.password_hashing import hash_password
from service.protocol.errors import InvalidGrant, LoginThrottled, OAuthError, TemporarilyUnavailable
from service.protocol.grammar import is_unicode_without_line_ends
from service.protocol.parameters import Form
from service.protocol.scope import MAIN_REALM
from service.protocol.user import MAX_PASSWORD_CHARACTERS, User
from service.store.browser_sessions import BrowserSession
from service.web.pages.authorization import AuthorizationPages
from service.web.pages.languages import Language
from service.web.pages.page import PageRefusal, SessionOver, add_retry_after
from service.web.pages.sessions import PasswordErrors, SessionsPages
from service.web.pages.steps import PageSteps
from service.web.request.client_address import get_address, get_prefixes
from service.web.request.security_events import recording_login
from service.web.request.state import REASON

PASSWORD_PARAMETERS: Final = frozenset({"csrf", "current", "new", "repeated"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordPage(PageSteps):
    authorization: AuthorizationPages
    sessions: SessionsPages

    async def post(self, request: Request) -> Response:
        """Change the password. A form with a mistake is shown again, without any of its passwords."""
        fields, session = await self.sessions.read_form(request, PASSWORD_PARAMETERS)
        if session.realm != MAIN_REALM:
            raise PageRefusal("forged", "realm_without_password")
        language = self.pages.get_language(request)
        mistakes = find_mistakes(language, fields, self.settings.min_password_characters)
        if mistakes is not None:
            return await self.sessions.render(request, session, password_errors=mistakes)
        try:
            await self.count_page(request)
            changed = await self._change(request, session, fields)
        except InvalidGrant as error:
            errors = PasswordErrors(current=language.text("password.current_wrong"))
            return await self._refuse(request, error, errors, status=200)
        except (LoginThrottled, TemporarilyUnavailable) as error:
            kind = "throttled" if isinstance(error, LoginThrottled) else "busy"
            errors = PasswordErrors(form=language.text(f"password.error_{kind}"))
            return await self._refuse(request, error, errors, status=error.status)
        return await self._redirect(request, session, changed)

    async def _change(self, request: Request, session: BrowserSession, fields: Form) -> User | None:
        """Return the new record, or None if another request changed it since the check of the current password."""
        prefixes = get_prefixes(request)
        with recording_login(request, realm=MAIN_REALM, client_id="", username=session.username):
            if not is_unicode_without_line_ends(fields["current"]):
                raise InvalidGrant("password_wrong")
            device = await self.authorization.get_device(request, session.username)
            user = await self.logins.log_in(MAIN_REALM, session.username, fields["current"], prefixes, device)
        password_hash = await self.passwords.run(hash_password, fields["new"], network=prefixes[-1].network)
        return await self.password_change.make(user, password_hash, address=get_address(request))

    async def _redirect(self, request: Request, session: BrowserSession, changed: User | None) -> Response:
        """Redirect to /sessions/, after a change with a new login under a new id.

        If the record changed meanwhile, the cookies are left alone: the change may come from this browser, in which it
        has set new ones.
        """
        notice = "password_changed_meanwhile" if changed is None else "password_changed"
        path = self.browsers.make_notice(request, "/sessions/", notice)
        if changed is None:
            return self.pages.redirect(path)
        remember_me = session.lifetime_ms > self.settings.login_session_ttl_ms
        response = await self.start_session(request, None, changed, remember_me=remember_me, path=path)
        if response is None:
            raise SessionOver
        self.browsers.set_device_cookie(request, response, changed)
        return response

    async def _refuse(self, request: Request, error: OAuthError, errors: PasswordErrors, *, status: int) -> Response:
        """Return the page with errors, unless the session has ended since the form was read."""
        REASON.set(request.scope, error.reason)
        session = await self.sessions.get_session(request)
        return add_retry_after(
            await self.sessions.render(request, session, password_errors=errors, status=status), error
        )


def find_mistakes(language: Language, fields: Form, min_characters: int) -> PasswordErrors | None:
    """Return what is wrong with the form, or None. Whether the current password is right is not checked here."""
    current, new, repeated = (fields.get(name, "") for name in ("current", "new", "repeated"))
    errors = PasswordErrors(
        current=None if current else language.text("password.current_missing"),
        new=_find_mistake_in_new(language, current, new, min_characters),
        repeated=None if repeated else language.text("password.repeated_missing"),
    )
    if repeated and not errors.new and repeated != new:
        errors = errors._replace(repeated=language.text("password.repeated_differs"))
    return errors if any(errors) else None


def _find_mistake_in_new(language: Language, current: str, new: str, min_characters: int) -> str | None:
    if not new:
        return language.text("password.new_missing")
    if not is_unicode_without_line_ends(new):
        return language.text("password.not_text")
    if len(new) < min_characters:
        return language.count("password.too_short", min_characters)
    if len(new) > MAX_PASSWORD_CHARACTERS:
        return language.count("password.too_long", MAX_PASSWORD_CHARACTERS)
    return language.text("password.not_new") if new == current else None
