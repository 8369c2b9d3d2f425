"""Access tokens: looked up by one GET, revoked one at a time. Presence decides; there is nothing else to ask.

Clauses: RFC 6749 §7, RFC 6750 §3.1, RFC 7009 §2.1, SPEC §4.3, §4.5
"""

from __future__ import annotations

from typing import Final

from service.protocol.bearer import AccessGrant
from service.store.connection import StoreConnection
from service.store.deadline import StoreUnavailable
from service.store.keys import access_key
from service.store.records import VERSION
from service.store.scripts import load_script
from service.tokens import RandomToken

_REVOKE: Final = load_script("revoke_access_token")


class AccessTokens:
    def __init__(self, connection: StoreConnection) -> None:
        self._connection = connection

    async def find(self, access_token: RandomToken) -> AccessGrant | None:
        record = await self._connection.read("GET", access_key(access_token.shard, access_token.digest))
        return None if record is None else parse_grant(record)

    async def revoke(self, access_token: RandomToken, *, client_id: str) -> str | None:
        """Whose token it was; None where there was none, or it is another client's. Durable at its return."""
        key = access_key(access_token.shard, access_token.digest)
        async with self._connection.durably(access_token.shard) as scripts:
            verdict = await scripts.run(_REVOKE, [key], [client_id])
            if verdict[0] == "unknown":
                await scripts.leave_fence()
        return str(verdict[1]) if verdict[0] == "revoked" else None


def parse_grant(record: bytes) -> AccessGrant:
    """Parse the record of an access token.

    Its lines: version, issued_ms, expires_ms, family digest, client_id, subject, username, scope, sid,
    upstream_subject, audience.

    Raises StoreUnavailable for a record of another version or of another form, and for one with an audience: what this
    code cannot read it cannot judge.
    """
    if not isinstance(record, bytes):  # whatever answered is no Redis
        raise StoreUnavailable("an access token's record is no text")
    try:
        version, *lines = record.decode().split("\n")
        if version != VERSION:
            raise StoreUnavailable(
                f"an access token's record has version {version[:20]!r}; this code knows version {VERSION}"
            )
        (
            issued_ms,
            expires_ms,
            family_digest,
            client_id,
            subject,
            username,
            scope,
            _sid,
            _upstream_subject,
            audience,
        ) = lines
        if audience:
            raise StoreUnavailable("an access token was made for one API; this code cannot tell for which")
        return AccessGrant(
            issued_at_ms=int(issued_ms),
            expires_at_ms=int(expires_ms),
            family_digest=family_digest,
            client_id=client_id,
            subject=subject,
            username=username,
            scope=scope,
        )
    except ValueError:
        raise StoreUnavailable(f"an access token's record does not have the form of version {VERSION}") from None
