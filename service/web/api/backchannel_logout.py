"""POST /oauth2/v1/backchannel-logout/{realm}, to which the identity provider of the realm reports logouts.

Clauses: OpenID Connect Back-Channel Logout 1.0 §2.5, §2.7, §2.8
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from service.protocol.errors import InvalidRequest
from service.protocol.parameters import LOGOUT_PARAMETERS, require
from service.protocol.token_response import NO_STORE_HEADERS
from service.protocol.user import User, digest_sid
from service.realms.login import Logins
from service.store.sessions.revocations import Revocations
from service.store.single_use import SingleUse, make_token_key
from service.web.request.reading import read_form
from service.web.request.security_events import record_user_event


@dataclass(frozen=True, slots=True)
class BackchannelLogoutEndpoint:
    logins: Logins
    single_use: SingleUse
    revocations: Revocations

    async def post(self, request: Request) -> Response:
        """End one login of the user at the identity provider, or all if the token has no `sid`.

        The token is noted as used last, so that it may come again after a failure.

        Clauses: OpenID Connect Back-Channel Logout 1.0 §2.7, §2.8
        """
        form = await read_form(request, LOGOUT_PARAMETERS)
        refusal = InvalidRequest("realm_without_logout", status=404)
        realm = await self.logins.get_external_realm(request.path_params["realm"], refusal)
        require(form, "logout_token")
        token = await realm.read_logout_token(form["logout_token"])
        logged_out = User(realm=realm.name, username=token.username)
        user = logged_out.identity
        key = make_token_key(user, token.jti)
        if await self.single_use.is_used(key):
            raise InvalidRequest("logout_token_used")
        if token.sid:
            sid = digest_sid(realm.name, token.sid)
            revoked = await self.revocations.end_provider_login(user.shard, user.digest, sid)
        else:
            revoked = await self.revocations.revoke_all(user.shard, user.digest, reason="provider_logout")
        event = "provider_logout" if revoked.was_alive else "nothing_revoked"
        record_user_event(request, event, logged_out, reason="login" if token.sid else "user")
        await self.single_use.note(key)
        return Response(headers=NO_STORE_HEADERS)
