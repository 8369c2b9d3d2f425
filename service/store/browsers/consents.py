"""Authorization requests that wait for the consent of a user who has logged in. Each is answered once.

Clauses: RFC 6749 §4.1.2, §4.1.2.1, §10.12, SPEC §4.1
"""

from __future__ import annotations

from typing import Final, Literal, cast

import msgspec

from service.protocol.authorization import ConsentRequest
from service.protocol.client import Lifetimes
from service.protocol.token_form import RandomToken
from service.protocol.user import User
from service.store.client import StoreClient, load_script
from service.store.keys import browser_key, code_key, consent_key, user_key
from service.store.records import Consent, parse_consent

CONSENT_MS: Final = 1_800_000

AllowAnswer = Literal["issued", "repeated", "answered", "changed", "signed_out", "unknown"]
DenyAnswer = Literal["denied", "repeated", "answered", "signed_out", "unknown"]

_HOLD: Final = load_script("browsers/hold_consent")
_ALLOW: Final = load_script("browsers/allow_consent")
_DENY: Final = load_script("browsers/deny_consent")


class Consents:
    """Authorization requests awaiting the user's consent, each for at most `consent_ms`."""

    def __init__(self, redis: StoreClient, lifetimes: Lifetimes, *, consent_ms: int = CONSENT_MS) -> None:
        self._consent_ms = consent_ms
        self._redis = redis
        self._lifetimes = lifetimes

    async def hold(self, name: RandomToken, session: RandomToken, consent_request: ConsentRequest) -> bool:
        """Store the request under `name`, which lies in the shard of the session's user.

        Returns False if that browser session is over.
        """
        verdict = await self._redis.run(
            _HOLD,
            consent_key=consent_key(name.shard, name.digest),
            browser_key=browser_key(session.shard, session.digest),
            consent_digest=name.digest,
            request=msgspec.json.encode(consent_request).decode(),
            ttl_ms=self._consent_ms,
        )
        return verdict[0] == "held"

    async def find(self, name: RandomToken) -> Consent | None:
        record = await self._redis.read("GET", consent_key(name.shard, name.digest))
        return None if record is None else parse_consent(record)

    async def allow(
        self, name: RandomToken, session: RandomToken, user: User, code_name: RandomToken, allowed: ConsentRequest
    ) -> AllowAnswer:
        """Allow the request and issue its code, once. The code exists if the result is "issued" or "repeated".

        "changed" means that the user's record changed since the scope of the code was judged. A session in another
        shard belongs to another user. The result is then "signed_out" without a call to Redis, because no script of a
        Redis Cluster reaches both shards.
        """
        if session.shard != name.shard:
            return "signed_out"
        verdict = await self._redis.run(
            _ALLOW,
            consent_key=consent_key(name.shard, name.digest),
            browser_key=browser_key(session.shard, session.digest),
            user_key=user_key(user.identity),
            code_key=code_key(code_name.shard, code_name.digest),
            revision=user.revision,
            code_digest=code_name.digest,
            client_id=allowed.request.client_id,
            redirect_uri=allowed.request.return_address.redirect_uri,
            code_challenge=allowed.request.code_challenge or "",
            username=user.username,
            scope=allowed.scope,
            code_ttl_ms=self._lifetimes.code_ms,
        )
        return cast("AllowAnswer", verdict[0])

    async def deny(self, name: RandomToken, session: RandomToken) -> DenyAnswer:
        """Deny the request. A session in another shard belongs to another user; the result is then "signed_out"."""
        if session.shard != name.shard:
            return "signed_out"
        verdict = await self._redis.run(
            _DENY,
            consent_key=consent_key(name.shard, name.digest),
            browser_key=browser_key(session.shard, session.digest),
        )
        return cast("DenyAnswer", verdict[0])
