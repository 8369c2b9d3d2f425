"""GET /authorization/, where a client sends the user's browser, and POST /authorization/switch, "not you?".

Clauses: RFC 6749 §3.1, §4.1.1, §4.1.2.1, SPEC §4.1, §5.2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from service.protocol import authorization
from service.protocol.authorization import AuthorizationRequest
from service.protocol.client import Client
from service.protocol.errors import AccessDenied
from service.store.browser_sessions import BrowserSessions
from service.web.pages.consent import ConsentEndpoint
from service.web.pages.endpoint import PageEndpoint
from service.web.pages.login import LoginEndpoint
from service.web.pages.page import PageRefusal, check_is_page, redirecting_all_errors_to
from service.web.request.form import read_form

SWITCHED: Final = "switched"
"""The notice to the authorization endpoint that another user than the last one will log in."""

SWITCH_PARAMETERS: Final = frozenset({"request", "csrf"})


@dataclass(frozen=True, slots=True)
class AuthorizationEndpoint(PageEndpoint):
    browser_sessions: BrowserSessions
    login: LoginEndpoint
    consent: ConsentEndpoint

    async def get(self, request: Request) -> Response:
        """Answer an authorization request with a page or a redirect.

        The client and its redirect_uri are checked first: no redirect is allowed before both are verified.

        Clauses: RFC 6749 §4.1.2.1, SPEC §7.3, §7.4
        """
        check_is_page(request)
        query = authorization.parse_query(request.scope["query_string"])
        language = self.pages.choose_language(request, query.values.get("ui_locales", ""))
        client = authorization.require_registered(await self.clients.find(authorization.read_client_id(query)))
        return_address = authorization.verify_return_address(query, client)
        with redirecting_all_errors_to(return_address):
            authorization_request = authorization.parse_authorization_request(query, client, return_address, language)
            realms = authorization.list_open_realms(authorization_request, client, await self.logins.list_realm_names())
            return await self._continue(request, authorization_request, client, realms)

    async def _continue(
        self, request: Request, authorization_request: AuthorizationRequest, client: Client, realms: Sequence[str]
    ) -> Response:
        """Return the consent page if the browser session satisfies the request, or else the login page.

        Consent is always asked for. If the user of the session cannot grant the request, the client gets no error yet:
        the person may have another account. An immediate redirect would also reveal to the client which users the
        person is not.

        The login page then forces a login, because an identity provider would otherwise return the same user.
        """
        force_login = self.browsers.find_notice(request) == SWITCHED
        name = self.browsers.find_session_token(request)
        session = await self.browser_sessions.find(name) if name else None
        if session is not None and session.realm in realms:
            user = await self.logins.find_user(session.realm, session.username)
            force_login = user is None
            if user is not None:
                try:
                    return await self.consent.ask(request, authorization_request, client, session, user)
                except AccessDenied:
                    force_login = True
                except PageRefusal:
                    pass  # the session has ended, or an interrupted revokeAll covers it and has not deleted it yet
        return await self.login.show_login(request, authorization_request, client, force_login=force_login)

    async def switch(self, request: Request) -> Response:
        """End the browser session, and start the same authorization request again (POST /authorization/switch)."""
        fields = await read_form(request, SWITCH_PARAMETERS)
        authorization_request, session = await self.consent.get_open_request(
            request, fields.get("request", ""), fields.get("csrf", "")
        )
        await self.browser_sessions.end(session.name)
        path = f"/authorization/?{authorization.make_query(authorization_request)}"
        response = self.pages.redirect(self.browsers.make_notice(request, path, SWITCHED))
        self.browsers.remove_session_cookie(response)
        return response
