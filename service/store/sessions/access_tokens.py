"""Lookup and revocation of single access tokens. A token is valid while its key exists, so one GET decides.

Clauses: RFC 6749 §7, RFC 6750 §3.1, RFC 7009 §2.1, SPEC §4.3, §4.5
"""

from __future__ import annotations

from typing import Final

from service.gateway.access_record import access_key, parse_grant
from service.protocol.bearer import AccessGrant
from service.protocol.token_form import RandomToken
from service.protocol.user import User
from service.store.client import StoreClient, load_script
from service.store.sessions.families import read_owner

_REVOKE: Final = load_script("sessions/revoke_access_token")


class AccessTokens:
    def __init__(self, redis: StoreClient) -> None:
        self._redis = redis

    async def find(self, access_token: RandomToken) -> AccessGrant | None:
        record = await self._redis.read("GET", access_key(access_token.shard, access_token.digest))
        return None if record is None else parse_grant(record)

    async def revoke(self, access_token: RandomToken, *, client_id: str) -> User | None:
        """Delete the access token. Durable on return.

        Returns its user, or None if the token is unknown or another client's.
        """
        key = access_key(access_token.shard, access_token.digest)
        async with self._redis.durable(access_token.shard) as scripts:
            verdict = await scripts.run(_REVOKE, access_key=key, client_id=client_id)
            if verdict[0] == "unknown":
                await scripts.leave_fence()
        return read_owner(verdict) if verdict[0] == "revoked" else None
