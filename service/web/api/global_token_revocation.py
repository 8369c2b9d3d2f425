"""POST /oauth2/v1/global-token-revocation, by which another system revokes everything of a user.

Clauses: draft-parecki-oauth-global-token-revocation, RFC 9493 §3, SPEC §3
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from service.protocol.client import check_user_revocation
from service.protocol.scope import MAIN_REALM
from service.protocol.subject_identifier import Email, IssuerAndSubject, Opaque, SubjectIdentifier, parse_sub_id
from service.protocol.token_response import NO_STORE_HEADERS
from service.protocol.user import User, UserIdentity, identify_subject, identify_user, is_username
from service.realms.external import ExternalRealms
from service.redis_client.deadline import StoreUnavailable
from service.registry.cache import UserCache
from service.store.revocations import Revocations
from service.web.request.client_authentication import ClientAuthenticator
from service.web.request.reading import read_json
from service.web.request.security_events import record_request_event


@dataclass(frozen=True, slots=True)
class GlobalTokenRevocationEndpoint:
    authenticator: ClientAuthenticator
    external_realms: ExternalRealms
    users: UserCache
    revocations: Revocations
    issuer: str

    async def post(self, request: Request) -> Response:
        """Revoke everything of the user. The answer does not tell whether there is such a user.

        A user of an external realm need not have a record. So the revocation does not depend on one, and a login of the
        user that is under way ends, too.
        """
        body = await read_json(request)
        caller = await self.authenticator.authenticate(request, {})
        sub_id = parse_sub_id(body)
        check_user_revocation(caller.client)
        identity = await self._identify(sub_id)
        if identity is not None:
            await self.revocations.revoke_all(identity.shard, identity.subject)
            named: User | UserIdentity = identity
            with suppress(StoreUnavailable):
                named = await self.users.find(identity) or identity
            record_request_event(
                request,
                "revoke_all",
                client_id=caller.client.client_id,
                username=named.username,
                realm=named.realm,
                sub=identity.subject,
                reason="client",
            )
        return Response(status_code=204, headers=NO_STORE_HEADERS)

    async def _identify(self, sub_id: SubjectIdentifier) -> UserIdentity | None:
        """Return the user, or None if no user can have this identifier. Raises InvalidRequest for an unknown issuer."""
        match sub_id:
            case Opaque(id=subject) | IssuerAndSubject(iss=self.issuer, sub=subject):
                return identify_subject(subject)
            case IssuerAndSubject():
                realm = await self.external_realms.find_by_issuer(sub_id.iss)
                identity = identify_user(realm, sub_id.sub)
            case Email():
                identity = identify_user(MAIN_REALM, sub_id.email)
        return identity if is_username(identity.username) else None
