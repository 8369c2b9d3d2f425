"""/sessions/, where a user lists and ends sessions of applications and browsers, and replaces the password.

Clauses: RFC 6749 §10.2, RFC 6819 §5.1.3, SPEC §3, §4.4
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from service.crypto.password_hashing import hash_password, normalize_password
from service.crypto.password_rules import find_password_mistake
from service.protocol.errors import InvalidGrant, LoginThrottled, TemporarilyUnavailable
from service.protocol.grammar import is_unicode_without_line_ends
from service.protocol.parameters import Form
from service.protocol.scope import MAIN_REALM, parse_scope
from service.protocol.user import MAX_PASSWORD_CHARACTERS, Login
from service.store.browsers.browser_sessions import BrowserSession
from service.store.records import BrowserSessionRecord, FamilyRecord
from service.web.pages.authorization import AuthorizationPages
from service.web.pages.cookies import Notice
from service.web.pages.languages import Language
from service.web.pages.page import PageRefusal, SessionOver, add_retry_after, check_is_page
from service.web.pages.steps import PageSteps
from service.web.request.client_address import get_peer, get_prefixes
from service.web.request.reading import read_form
from service.web.request.security_events import record_user_event, recording_login

SESSIONS_PARAMETERS: Final = frozenset({"csrf", "session", "browser", "current", "new", "twice", "repeated"})
MAX_SHOWN: Final = 100

_FORCES_LOGIN: Final[tuple[Notice, ...]] = ("signed_out_here", "signed_out_everywhere", "login_not_admitted")
"""The notices after which a login is forced.

Otherwise an identity provider could log the next person in as the last one.
"""


class PasswordErrors(NamedTuple):
    """The texts that say what is wrong with each field of the form for a new password, and with the form itself."""

    form: str | None = None
    current: str | None = None
    new: str | None = None
    repeated: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsPages(PageSteps):
    authorization: AuthorizationPages

    async def redirect_with_slash(self, _: Request) -> Response:
        """Redirect to /sessions/. People type the address without its last slash."""
        return self.pages.redirect("/sessions/")

    async def get(self, request: Request) -> Response:
        check_is_page(request)
        session = await self._find_session_of_user(request)
        if session is not None:
            return await self._render(request, session)
        notice = self.browsers.find_notice(request)
        return await self.authorization.show_login(
            request, None, None, notice=notice, force_login=notice in _FORCES_LOGIN
        )

    async def _render(
        self,
        request: Request,
        session: BrowserSession,
        *,
        password_errors: PasswordErrors | None = None,
        status: int = 200,
    ) -> Response:
        """Return the page of a browser that is signed in."""
        language = self.pages.get_language(request)
        is_changed = self.browsers.find_notice(request) == "password_changed"
        found, more = await self.families.list_of_user(session.identity, MAX_SHOWN)
        browsers, more_browsers = await self.browser_sessions.list_of_user(session.identity, MAX_SHOWN)
        return self.pages.render(
            request,
            "sessions.html",
            status=status,
            notice=language.text("login.notice_password_changed") if is_changed else None,
            has_password=session.record.realm == MAIN_REALM,
            password_errors=password_errors or PasswordErrors(),
            password_hint=language.count("password.hint", self.settings.min_password_characters),
            username=session.record.username,
            name=session.record.name,
            sessions=[await self._show(digest, family) for digest, family in found],
            more=more,
            browsers=sorted((_show_browser(*found, session) for found in browsers), key=lambda it: not it["is_this"]),
            more_browsers=more_browsers,
            now=_to_datetime(await self.families.read_clock_ms()),
            csrf=self.browsers.sign_form("sessions", session.name.text),
        )

    async def end(self, request: Request) -> Response:
        """End one session with its access tokens. Another user's session and an ended session are ignored."""
        fields, session = await self._read_form(request)
        shard, digest = session.name.shard, fields.get("session", "")
        family = await self.families.find(shard, digest)
        if family is not None and family.user_digest == session.identity.digest:
            client_id = family.client_id
            if await self.families.end(shard, digest, client_id=client_id, reason="signed_out") is not None:
                record_user_event(request, "session_revoked", session.record, client_id=client_id, session=digest)
        return self.pages.redirect("/sessions/")

    async def end_browser(self, request: Request) -> Response:
        """End the login in one browser. Another user's and one that has ended are ignored."""
        fields, session = await self._read_form(request)
        digest = fields.get("browser", "")
        is_ended = await self.browser_sessions.end_of_user(session.identity, digest)
        if is_ended:
            record_user_event(request, "signed_out", session.record)
        if is_ended and digest == session.name.digest:
            return self._redirect_to_login(request, "signed_out_here")
        return self.pages.redirect("/sessions/")

    async def end_all(self, request: Request) -> Response:
        """End every session in every application and browser, including this browser, as revokeAll does.

        Clauses: SPEC §3, §4.4
        """
        _, session = await self._read_form(request)
        name = session.name
        await self.revocations.revoke_all(
            name.shard, session.identity.digest, kept_browser=name.digest, reason="signed_out_everywhere"
        )
        record_user_event(request, "revoke_all", session.record, reason="sessions_page")
        return self._redirect_to_login(request, "signed_out_everywhere")

    async def sign_out(self, request: Request) -> Response:
        """End the session of this browser only. The sessions of applications continue."""
        _, session = await self._read_form(request)
        await self.browser_sessions.end(session.name)
        record_user_event(request, "signed_out", session.record)
        return self._redirect_to_login(request, "signed_out_here")

    def _redirect_to_login(self, request: Request, notice: Notice) -> Response:
        response = self.pages.redirect(self.browsers.make_notice(request, notice))
        self.browsers.remove_session_cookie(response)
        return response

    async def _read_form(self, request: Request) -> tuple[Form, BrowserSession]:
        """Return the form and the browser session that sent it.

        Raises SessionOver if the session has ended, or PageRefusal if the form did not come from its page.
        """
        fields = await read_form(request, SESSIONS_PARAMETERS)
        session = await self._get_session(request)
        if not self.browsers.verify_csrf(fields.get("csrf", ""), "sessions", session.name.text):
            raise PageRefusal("forged", "sessions_form_forged")
        return fields, session

    async def _get_session(self, request: Request) -> BrowserSession:
        """Return the browser session. Raises SessionOver if it has ended or its user may no longer log in."""
        session = await self._find_session_of_user(request)
        if session is None:
            raise SessionOver
        return session

    async def _find_session_of_user(self, request: Request) -> BrowserSession | None:
        session = await self.find_session(request)
        if session is None or await self.logins.find_user(session.record.realm, session.record.username) is None:
            return None
        return session

    async def change_password(self, request: Request) -> Response:
        """Change the password of a user of realm main, and end all other sessions.

        A form with a mistake is shown again, without any of its passwords.

        The check of the current password is a login: it has the same limits, security events and threads.

        Clauses: RFC 6749 §10.10, §10.12, RFC 6819 §4.4.1.8, §5.1.4.2.3, SPEC §3
        """
        fields, session = await self._read_form(request)
        if session.record.realm != MAIN_REALM:
            raise PageRefusal("forged", "realm_without_password")
        listed = await self.logins.find_user(MAIN_REALM, session.record.username)
        language, least = self.pages.get_language(request), self.settings.min_password_characters
        shown = listed.name if listed else ""
        mistakes = await asyncio.to_thread(find_mistakes, language, fields, least, session.record.username, shown)
        if mistakes is not None:
            return await self._render(request, session, password_errors=mistakes)
        try:
            await self.count_page(request)
            login = await self._replace_password(request, session, fields)
        except (InvalidGrant, LoginThrottled, TemporarilyUnavailable) as error:
            message, status = self.describe_refusal(request, "password", error, None)
            errors = PasswordErrors(**{"current" if isinstance(error, InvalidGrant) else "form": message})
            session = await self._get_session(request)  # it may have ended since the form was read
            page = await self._render(request, session, password_errors=errors, status=status)
            return add_retry_after(page, error)
        path = self.browsers.make_notice(request, "password_changed")
        remember_me = session.record.expires_ms - session.record.created_ms > self.settings.login_session_ttl_ms
        response = await self.start_session(request, None, login, remember_me=remember_me, path=path)
        if response is None:
            raise SessionOver
        self.browsers.set_device_cookie(request, response, login.user)
        return response

    async def _replace_password(self, request: Request, session: BrowserSession, fields: Form) -> Login:
        """Return a login with the new record.

        Raises TemporarilyUnavailable if another request changed it since the check of the current password.
        """
        prefixes = get_prefixes(request)
        with recording_login(request, realm=MAIN_REALM, client_id="", user=session.record):
            if not is_unicode_without_line_ends(fields["current"]):
                raise InvalidGrant("password_wrong")
            device = await self.authorization.get_device(request, session.record.username)
            login = await self.logins.log_in(MAIN_REALM, session.record.username, fields["current"], prefixes, device)
        password_hash = await self.passwords.run(hash_password, fields["new"], network=prefixes[-1].network)
        changed = await self.password_change.make(login, password_hash, address=get_peer(request.scope))
        if changed is None:
            raise TemporarilyUnavailable("record_changed", retry_after_seconds=1)
        return changed

    async def _show(self, digest: str, family: FamilyRecord) -> dict[str, Any]:
        client = await self.clients.find(family.client_id)
        return {
            "id": digest,
            "client_name": (client.client_name if client else "") or family.client_id,
            "roles": parse_scope(family.scope).roles,
            "since": _to_datetime(family.created_ms),
            "last_used": _to_datetime(family.used_ms),
            "browser": family.browser_name.partition("/"),
        }


def _show_browser(digest: str, record: BrowserSessionRecord, session: BrowserSession) -> dict[str, Any]:
    return {
        "id": digest,
        "is_this": digest == session.name.digest,
        "since": _to_datetime(record.created_ms),
        "last_used": _to_datetime(record.used_ms),
        "until": _to_datetime(record.expires_ms),
        "names": record.browser_name.partition("/"),
    }


def _to_datetime(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def find_mistakes(language: Language, fields: Form, min_characters: int, *names: str) -> PasswordErrors | None:
    """Return what is wrong with the form, or None. Whether the current password is right is not checked here.

    `names` must not be used as a password. Without scripts, the form has `twice`, and two fields for the new password.
    """
    current, new = fields.get("current", ""), fields.get("new", "")
    repeated = fields.get("repeated", "" if "twice" in fields else new)
    errors = PasswordErrors(
        current=None if current else language.text("password.current_missing"),
        new=_find_mistake_in_new(language, current, new, min_characters, *names),
        repeated=None if repeated or not new else language.text("password.repeated_missing"),
    )
    if repeated and not errors.new and repeated != new:
        errors = errors._replace(repeated=language.text("password.repeated_differs"))
    return errors if any(errors) else None


def _find_mistake_in_new(language: Language, current: str, new: str, least: int, *names: str) -> str | None:
    if not new:
        return language.text("password.new_missing")
    mistake = find_password_mistake(new, least, *names)
    if mistake == "too_short":
        return language.count("password.too_short", least)
    if mistake == "too_long":
        return language.count("password.too_long", MAX_PASSWORD_CHARACTERS)
    if mistake is not None:
        return language.text(f"password.{mistake}")
    return language.text("password.not_new") if normalize_password(new) == normalize_password(current) else None
