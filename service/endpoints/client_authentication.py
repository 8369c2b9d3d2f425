"""Who the client is: found, throttled, and its secret checked, cheaply where it was right before.

Clauses: RFC 6749 §2.3, §2.3.1, §3.2.1, §10.1, §10.10, RFC 7009 §2.1, SPEC §5.1
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple, NoReturn
from weakref import WeakValueDictionary

from starlette.requests import Request

from service.endpoints.addresses import find_throttle_address
from service.hashing import MADE_SECRET_PREFIX, HashingPool, SecretMemory, hash_made_secret, verify_password
from service.protocol.client import Client
from service.protocol.client_authentication import ClientCredentials, check_secret_presence, parse_client_credentials
from service.protocol.errors import ClientThrottled, InvalidClient
from service.protocol.parameters import Form
from service.registry.cache import RegistryCache
from service.store.attempts import Attempts, Counter, Exhausted
from service.store.connection import StoreUnavailable
from service.store.keys import address_key

ADDRESS_FACTOR: Final = 3
"""An address may fail for all clients together three times as often as for one."""

_TRUSTED_SECONDS: Final = 1.0
_MOST_ENTRIES: Final = 10_000

Candidate = tuple[Client | None, ClientCredentials]
"""One reading of what was sent, and the client that it names."""


class AuthenticatedClient(NamedTuple):
    client: Client
    secret_used: bool


class ClientAuthenticator:
    def __init__(
        self,
        clients: RegistryCache[Client | None],
        attempts: Attempts,
        allowed: tuple[int, int],
        secrets: HashingPool,
    ) -> None:
        self._clients = clients
        self._attempts = attempts
        self._allowed = allowed
        self._secrets = secrets
        self._memory = SecretMemory()
        self._turns: WeakValueDictionary[tuple[ClientCredentials, ...], asyncio.Lock] = WeakValueDictionary()
        self._waits: OrderedDict[tuple[Counter, ...], tuple[float, float]] = OrderedDict()

    async def authenticate(self, request: Request, form: Form) -> AuthenticatedClient:
        """Raises InvalidClient, InvalidRequest where two methods are mixed, or ClientThrottled past the limit.

        A public client has no secret that could be guessed, and is not throttled.
        """
        readings = parse_client_credentials(request.headers.getlist("authorization"), form)
        found = [(await self._clients.find(reading.client_id), reading) for reading in readings]
        for client, reading in found:
            if client is not None and client.is_public and reading.client_secret is None:
                return AuthenticatedClient(client, secret_used=False)
        counters = self._make_counters(readings[0].client_id, find_throttle_address(request))
        client = self._find_known_right(found)
        if client is None:
            # Equal credentials that arrive together are checked once; the others find the answer remembered.
            async with self._turns.setdefault(readings, asyncio.Lock()):
                client = self._find_known_right(found)
                if client is None:
                    return AuthenticatedClient(await self._check_slowly(found, counters), secret_used=True)
        await self._check_wait(counters)
        return AuthenticatedClient(client, secret_used=True)

    def _make_counters(self, client_id: str, address: str) -> tuple[Counter, ...]:
        most, window_ms = self._allowed
        return (
            Counter(address_key("client", address, client_id), most, window_ms),
            Counter(address_key("client", address), ADDRESS_FACTOR * most, window_ms),
        )

    def _find_known_right(self, found: Sequence[Candidate]) -> Client | None:
        for client, reading in found:
            if client is not None and self._is_known_right(client, reading):
                return client
        return None

    def _is_known_right(self, client: Client, reading: ClientCredentials) -> bool:
        """By one SHA-256 for a secret that the service made, or from memory for one that was right before."""
        stored, secret = client.client_secret_hash, reading.client_secret
        if stored is None or secret is None:
            return False
        if stored.startswith(MADE_SECRET_PREFIX):
            return hmac.compare_digest(stored, hash_made_secret(secret))
        return self._memory.knows(client.client_id, secret, stored)

    async def _check_wait(self, counters: tuple[Counter, ...]) -> None:
        """A right secret is refused past the limit as well, or guessing would still find it.

        Redis is asked once a second per client and address; a failure on this worker is known at once.
        """
        checked_at, ends_at = self._waits.get(counters, (-_TRUSTED_SECONDS, 0.0))
        if time.monotonic() - checked_at >= _TRUSTED_SECONDS:
            ends_at = self._note_wait(counters, await self._attempts.find_wait_ms(counters))
        if time.monotonic() < ends_at:
            self._refuse(ends_at - time.monotonic())

    def _note_wait(self, counters: tuple[Counter, ...], wait_ms: int) -> float:
        now = time.monotonic()
        self._waits[counters] = (now, now + wait_ms / 1000)
        self._waits.move_to_end(counters)
        if len(self._waits) > _MOST_ENTRIES:
            self._waits.popitem(last=False)
        return now + wait_ms / 1000

    def _refuse(self, wait_seconds: float) -> NoReturn:
        raise ClientThrottled("client_throttled", retry_after_seconds=max(1, -int(-wait_seconds // 1)))

    async def _check_slowly(self, found: Sequence[Candidate], counters: tuple[Counter, ...]) -> Client:
        """Reserved before the check and counted when it fails; whoever is unknown fails like a wrong secret."""
        self._secrets.check_room()
        try:
            await self._attempts.reserve(counters)
        except Exhausted as error:
            self._note_wait(counters, error.wait_ms)
            self._refuse(error.wait_ms / 1000)
        try:
            client = await self._check_secrets(found)
        except InvalidClient:
            await self._attempts.settle(counters, passed=False)
            self._waits.pop(counters, None)
            raise
        except BaseException:
            with suppress(StoreUnavailable):
                await self._attempts.settle(counters, passed=True)
            raise
        await self._attempts.settle(counters, passed=True)
        return client

    async def _check_secrets(self, found: Sequence[Candidate]) -> Client:
        refusal = InvalidClient("client_unknown")
        for client, reading in found:
            if client is None:
                continue
            try:
                check_secret_presence(client.is_public, reading)
            except InvalidClient as error:
                refusal = error
                continue
            if await self._is_right(client, reading.client_secret or ""):
                return client
            refusal = InvalidClient("client_secret_wrong")
        raise refusal

    async def _is_right(self, client: Client, client_secret: str) -> bool:
        stored = client.client_secret_hash or ""
        if stored.startswith(MADE_SECRET_PREFIX):
            return hmac.compare_digest(stored, hash_made_secret(client_secret))
        right, _ = await self._secrets.run(verify_password, client_secret, stored)
        if right:
            self._memory.remember(client.client_id, client_secret, stored)
        return right
