"""The password grant, which exchanges a user name and a password for tokens.

Clauses: RFC 6749 §4.3.2, §4.3.3, SPEC §4.2, §5.4
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from starlette.requests import Request

from service.crypto.keyring import Keyring, make_access_token, make_first_refresh_token
from service.protocol.client import PASSWORD, check_grant_type, check_scope
from service.protocol.errors import InvalidClient, InvalidGrant, InvalidScope
from service.protocol.parameters import Form, check_text
from service.protocol.scope import Scope, check_one_realm_one_role, check_user_has, parse_scope
from service.protocol.token_response import TokenResponse
from service.realms.login import Logins
from service.registry.cache import ClientCache, UserCache
from service.store.families import Families
from service.web.api.grants.issue import make_token_response, record_issue
from service.web.request.client_address import get_prefixes
from service.web.request.client_authentication import AuthenticatedClient
from service.web.request.security_events import record_request_event, recording_login


@dataclass(frozen=True, slots=True)
class PasswordGrant:
    clients: ClientCache
    users: UserCache
    logins: Logins
    families: Families
    keyring: Keyring

    grant_type: ClassVar[str] = PASSWORD
    required: ClassVar[tuple[str, ...]] = ("username", "password")

    async def issue(self, request: Request, form: Form, caller: AuthenticatedClient) -> TokenResponse:
        """Clauses: RFC 6749 §4.3.2, §4.3.3, SPEC §4.2 (password), §5.4"""
        check_text(form, "username", "password")
        if "scope" not in form:
            raise InvalidScope("scope_missing")
        scope = parse_scope(form["scope"])
        check_one_realm_one_role(scope)
        check_scope(caller.client, scope)
        realm, client_id, username = scope.realms[0], caller.client.client_id, form["username"]
        with recording_login(request, realm=realm, client_id=client_id, username=username):
            user = await self.logins.log_in(realm, username, form["password"], get_prefixes(request))
        record_request_event(request, "login_succeeded", client_id=client_id, username=user.username, realm=realm)
        await self._check_registration_again(caller, scope)
        check_user_has(scope, user.roles)
        shard = user.identity.shard
        refresh_token, access_token = make_first_refresh_token(shard), make_access_token(shard)
        lives_ms = await self.families.start(
            user,
            client_id=client_id,
            scope=str(scope),
            secret_used=caller.secret_used,
            refresh_token=refresh_token,
            access_token=access_token,
        )
        if lives_ms is None:
            self.users.forget(user.identity)
            raise InvalidGrant("user_changed")
        record_issue(request, PASSWORD, caller, refresh_token, user.username, str(scope))
        return make_token_response(self.keyring, access_token, refresh_token, lives_ms, str(scope))

    async def _check_registration_again(self, caller: AuthenticatedClient, scope: Scope) -> None:
        """Raise an OAuthError if the client lost its registration, the grant type or the scope during the login.

        A login takes time, and its client may have changed since the first check.
        """
        client = await self.clients.find(caller.client.client_id)
        if client is None:
            raise InvalidClient("client_unknown")
        check_grant_type(client, PASSWORD)
        check_scope(client, scope)
