"""The components that the endpoints with a login share, and a check that these endpoints repeat."""

from __future__ import annotations

from dataclasses import dataclass

from service.protocol.authorization import AuthorizationRequest, recheck_registration
from service.protocol.client import Client
from service.realms.login import Logins
from service.registry.cache import ClientCache
from service.web.pages.cookies import BrowserCookies
from service.web.pages.page import Pages


@dataclass(frozen=True, slots=True)
class PageEndpoint:
    """The base of each endpoint whose pages belong to a login or need one."""

    pages: Pages
    browsers: BrowserCookies
    clients: ClientCache
    logins: Logins

    async def recheck_client(self, request: AuthorizationRequest, scope: str) -> Client:
        """Return the client of the request as it is registered now, or raise what `recheck_registration` raises."""
        return recheck_registration(request, scope, await self.clients.find(request.client_id))
