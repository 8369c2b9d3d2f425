"""Authorization codes: lookup, and an exchange that succeeds once and is remembered for a while.

`consents.py` issues the codes.

Clauses: RFC 6749 §4.1.2, §4.1.3, §10.5, RFC 6819 §5.1.5.3, §5.2.4.4
"""

from __future__ import annotations

from typing import Final, cast

from service.crypto.keyring import RefreshToken
from service.gateway.access_record import access_key
from service.protocol.authorization_code import AuthorizationCode, RedeemedCode
from service.protocol.client import Client, Lifetimes
from service.protocol.token_form import RandomToken
from service.protocol.verdicts import CodeRefusal
from service.store.client import StoreClient, load_script
from service.store.keys import code_key, family_key, redeemed_key
from service.store.records import parse_code, parse_redeemed
from service.store.sessions.families import record_displaced

REMEMBERED_MS: Final = 600_000

_REDEEM: Final = load_script("sessions/redeem_authorization_code")


class Codes:
    def __init__(self, redis: StoreClient, lifetimes: Lifetimes) -> None:
        self._redis = redis
        self._lifetimes = lifetimes

    async def find(self, name: RandomToken) -> AuthorizationCode | RedeemedCode | None:
        keys = (code_key(name.shard, name.digest), redeemed_key(name.shard, name.digest))
        issued, redeemed = await self._redis.read("MGET", *keys)
        if issued is not None:
            return parse_code(issued)
        return None if redeemed is None else parse_redeemed(redeemed)

    async def redeem(
        self,
        name: RandomToken,
        *,
        client: Client,
        secret_used: bool,
        refresh_token: RefreshToken,
        access_token: RandomToken,
    ) -> int | CodeRefusal:
        """Exchange the code and start its family. Durable on return.

        The caller has checked that the code is this client's.

        Returns the access token's lifetime in milliseconds, or the refusal.
        """
        lifetimes = self._lifetimes.of(client)
        async with self._redis.durable(name.shard) as scripts:
            verdict = await scripts.run(
                _REDEEM,
                code_key=code_key(name.shard, name.digest),
                redeemed_key=redeemed_key(name.shard, name.digest),
                family_key=family_key(name.shard, refresh_token.family_digest),
                access_key=access_key(name.shard, access_token.digest),
                code_digest=name.digest,
                family_digest=refresh_token.family_digest,
                access_digest=access_token.digest,
                secret_used=int(secret_used),
                remembered_ms=max(REMEMBERED_MS, self._lifetimes.code_ms),
                access_ttl_ms=lifetimes.access_token_ms,
                refresh_ttl_ms=lifetimes.refresh_token_ms,
                max_age_ms=lifetimes.session_max_age_ms or 0,
                sessions_per_user=lifetimes.sessions_per_user,
            )
            record_displaced(verdict[2:])
        return int(verdict[1]) if verdict[0] == "redeemed" else cast("CodeRefusal", verdict[0])
