"""POST /oauth2/v1/global-token-revocation, by which another system revokes everything of a user.

Clauses: draft-parecki-oauth-global-token-revocation, SPEC §3
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from service.observability.audit import name_user
from service.protocol.client import check_user_revocation
from service.protocol.errors import InvalidRequest
from service.protocol.scope import MAIN_REALM
from service.protocol.token_response import NO_STORE_HEADERS
from service.protocol.user import ID_FORM, User, UserIdentity, identify_external_subject, identify_user, is_username
from service.realms.login import Logins
from service.registry.cache import UserCache
from service.store.registry.user_ids import UserIds
from service.store.sessions.revocations import Revocations
from service.web.request.client_authentication import ClientAuthenticator
from service.web.request.reading import read_json
from service.web.request.security_events import record_request_event


@dataclass(frozen=True, slots=True)
class GlobalTokenRevocationEndpoint:
    authenticator: ClientAuthenticator
    logins: Logins
    users: UserCache
    ids: UserIds
    revocations: Revocations
    issuer: str

    async def post(self, request: Request) -> Response:
        """Revoke everything of the user. The answer does not tell whether there is such a user.

        A user of an external realm may have sessions without a record. The record only adds the name to the event.
        Made-up users must not displace events, so if there is neither record nor session, the event is only logged.
        """
        body = await read_json(request)
        client = (await self.authenticator.authenticate(request, {})).client
        issuer, name = parse_sub_id(body, self.issuer)
        check_user_revocation(client)
        done: list[UserIdentity] = []
        # A rename that comes in between gives the id another name, whose sessions end, too.
        while identity := next((each for each in await self._identify(issuer, name) if each not in done), None):
            done.append(identity)
            revoked = await self.revocations.revoke_all(identity.shard, identity.digest)
            user = await self.users.find(identity)
            event = "revoke_all" if user is not None or revoked.was_alive else "nothing_revoked"
            named = name_user(user or User(realm=identity.realm, username=identity.username))
            sub = name if issuer == self.issuer else named["sub"]
            record_request_event(request, event, **named | {"sub": sub}, client_id=client.client_id, reason="client")
        return Response(status_code=204, headers=NO_STORE_HEADERS)

    async def _identify(self, issuer: str, name: str) -> list[UserIdentity]:
        """Return the user, or nobody if no user has this name. A user who is being renamed has two.

        Raises InvalidRequest for an unknown issuer.
        """
        if issuer == self.issuer:
            external = identify_external_subject(name)
            return [external] if external else await self.ids.find(name) if ID_FORM.fullmatch(name) else []
        realm = await self.logins.get_realm_of(issuer) if issuer else MAIN_REALM
        identity = identify_user(realm, name)
        return [identity] if is_username(identity.username) else []


def parse_sub_id(body: Any, own_issuer: str) -> tuple[str, str]:
    """Return the issuer that the subject identifier names, and the name that this issuer gives the user.

    The issuer of an e-mail address is an empty text. Unknown members are ignored. Raises InvalidRequest if the body has
    no identifier of a known format.

    Clauses: RFC 9493 §3, §3.2.2, §3.2.3, §3.2.4
    """
    match body:
        case {"sub_id": {"format": "opaque", "id": str(sub)}} if sub:
            return own_issuer, sub
        case {"sub_id": {"format": "iss_sub", "iss": str(iss), "sub": str(sub)}} if iss and sub:
            return iss, sub
        case {"sub_id": {"format": "email", "email": str(email)}} if email:
            return "", email
    raise InvalidRequest("sub_id_malformed")
