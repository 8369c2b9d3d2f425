"""The authentication of clients: find the client, apply the rate limit, and verify the secret.

A secret that was verified before is verified again without a slow hash.

Clauses: RFC 6749 §2.3, §2.3.1, §3.2.1, §10.1, §10.10, RFC 7009 §2.1, SPEC §5.1
"""

from __future__ import annotations

import asyncio
import hmac
import math
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from starlette.requests import Request

from service.crypto.hashing_pool import HashingPool
from service.crypto.keyring import GENERATED_SECRET_PREFIX, hash_generated_secret
from service.protocol.client import Client
from service.protocol.errors import ClientThrottled, InvalidClient, TemporarilyUnavailable
from service.protocol.parameters import ClientCredentials, Form, check_secret_presence, parse_client_credentials
from service.redis_client.deadline import charge_wait
from service.registry.cache import ClientCache
from service.store.attempts import QUEUE_TIMEOUT_SECONDS, Attempts, Counter, Exhausted, Prefixes, make_address_counters
from service.web.request.client_address import get_prefixes
from service.web.request.reading import list_header_values
from service.web.request.state import CLIENT_ID

ADDRESS_FACTOR: Final = 3
"""The limit of failures for an address and all clients, as a multiple of the limit for an address and one client."""

ADMITTED_SECONDS: Final = 1.0
"""The time for which a right secret is accepted without another request for room under the rate limit."""

_MAX_ENTRIES: Final = 10_000

Counters = tuple[Counter, ...]

Candidates = tuple[tuple[Client | None, ClientCredentials], ...]
"""The possible readings of the credentials, each with the registered client that it names, or None."""


class AuthenticatedClient(NamedTuple):
    client: Client
    secret_used: bool


class _Deadlines(dict[Counters, float]):
    """A bounded mapping from counters to a deadline on the monotonic clock, for this worker only."""

    def start(self, counters: Counters, seconds: float) -> None:
        if len(self) >= _MAX_ENTRIES:
            self.clear()
        self[counters] = time.monotonic() + seconds

    def seconds_left(self, counters: Counters) -> float:
        return self.get(counters, 0.0) - time.monotonic()


class VerifiedSecretCache:
    """A cache of correct client secrets, so that a busy client pays for the slow hash once per worker.

    The cache maps a stored hash to a digest of hash and secret, under a key of this process. A rotated secret has a new
    stored hash, so the old entry no longer matches.
    """

    def __init__(self) -> None:
        self._key = hmac.new(secrets.token_bytes(32), digestmod="sha256")
        self._digests: dict[str, bytes] = {}

    def remember(self, client_secret: str, stored_hash: str) -> None:
        if len(self._digests) >= _MAX_ENTRIES:
            self._digests.clear()
        self._digests[stored_hash] = self._digest(client_secret, stored_hash)

    def contains(self, client_secret: str, stored_hash: str) -> bool:
        remembered = self._digests.get(stored_hash, b"")
        return hmac.compare_digest(remembered, self._digest(client_secret, stored_hash))

    def _digest(self, client_secret: str, stored_hash: str) -> bytes:
        digest = self._key.copy()
        digest.update(f"{stored_hash}\n{client_secret}".encode())
        return digest.digest()


@dataclass
class ClientAuthenticator:
    """The authentication of clients. `_allowed` is the limit of one address: a count and a window in milliseconds."""

    _clients: ClientCache
    _attempts: Attempts
    _allowed: tuple[int, int]
    _secrets: HashingPool
    _now_ms: Callable[[], int]
    _is_seed_in_force: Callable[[], Awaitable[bool]]
    admitted_seconds: float = ADMITTED_SECONDS
    _memory: VerifiedSecretCache = field(default_factory=VerifiedSecretCache, init=False)
    _turns: WeakValueDictionary[Counters, asyncio.Lock] = field(default_factory=WeakValueDictionary, init=False)
    _blocked: _Deadlines = field(default_factory=_Deadlines, init=False)
    _admitted: _Deadlines = field(default_factory=_Deadlines, init=False)

    async def authenticate(self, request: Request, form: Form) -> AuthenticatedClient:
        """Return the client that the request authenticates.

        A public client has no secret that could be guessed, so no rate limit applies to it. Raises InvalidClient,
        InvalidRequest if two methods are mixed, or ClientThrottled past the limit. Raises TemporarilyUnavailable if too
        many checks wait, or in place of InvalidClient if the seed file is not in force.
        """
        candidates = await self._get_candidates(request, form)
        for client, reading in candidates:
            if client is not None and client.is_public and reading.client_secret is None:
                return AuthenticatedClient(client, secret_used=False)
        try:
            client = await self._check(candidates, get_prefixes(request))
        except InvalidClient:
            if await self._is_seed_in_force():
                raise
            raise TemporarilyUnavailable("seed_not_in_force", retry_after_seconds=1) from None
        return AuthenticatedClient(client, secret_used=True)

    async def _get_candidates(self, request: Request, form: Form) -> Candidates:
        """Return the readings that name a registered client, or the first reading if none does."""
        readings = parse_client_credentials(list_header_values(request.scope, b"authorization"), form)
        found = [(await self._clients.find(reading.client_id), reading) for reading in readings]
        known = [(client, reading) for client, reading in found if client is not None]
        request.scope[CLIENT_ID] = known[0][0].client_id if known else ""
        return tuple(known) or ((None, readings[0]),)

    async def _check(self, candidates: Candidates, prefixes: Prefixes) -> Client:
        """Return the client whose secret is right. All readings of one request count as one attempt.

        Past the limit, every request is refused before its secret is checked. The refusal therefore reveals nothing
        about the secret.
        """
        counters = _make_counters(self._allowed, tuple([reading.client_id for _, reading in candidates]), prefixes)
        client = self._find_admitted(candidates, counters)
        if client is None:
            # Requests that arrive together are checked once; the later ones find the result in memory.
            async with self._take_turn(counters):
                client = self._find_admitted(candidates, counters)
                if client is None:
                    client = await self._verify_within_limit(candidates, counters, prefixes[-1].network)
        return client

    def _find_admitted(self, candidates: Candidates, counters: Counters) -> Client | None:
        """Return the client if its secret is known to be right and Redis need not be asked for room.

        Raises ClientThrottled if the limit was reached on this worker.
        """
        wait_seconds = self._blocked.seconds_left(counters)
        if wait_seconds > 0:
            raise ClientThrottled("client_throttled", retry_after_seconds=math.ceil(wait_seconds))
        return self._find_known_right(candidates) if self._admitted.seconds_left(counters) > 0 else None

    async def _verify_within_limit(self, candidates: Candidates, counters: Counters, network: str) -> Client:
        """Reserve one attempt, check each reading unless the client is known, and count one failure if all are wrong.

        A right secret must be refused past the limit as well; otherwise a flood of guesses would still find it. After
        one that passed, Redis is not asked again for ADMITTED_SECONDS, unless a check on this worker fails. An unknown
        client fails like a wrong secret.
        """
        known = self._find_known_right(candidates)
        self._admitted.pop(counters, None)
        try:
            async with self._attempts.checking(counters, failure=InvalidClient):
                client = known or await self._verify_slowly(candidates, network)
        except Exhausted as error:
            self._blocked.start(counters, error.wait_ms / 1000)
            raise ClientThrottled("client_throttled", retry_after_seconds=error.wait_seconds) from None
        self._admitted.start(counters, self.admitted_seconds)
        return client

    def _find_known_right(self, candidates: Candidates) -> Client | None:
        """Return the client of the first reading whose secret is right without a slow hash, or None.

        A secret that the service generated is compared by one SHA-256. A chosen secret is looked up among those
        verified before.
        """
        for client, reading in candidates:
            if client is not None and reading.client_secret is not None:
                for stored in self._accepted_hashes(client):
                    if self._is_known(reading.client_secret, stored):
                        return client
        return None

    def _is_known(self, client_secret: str, stored: str) -> bool:
        if stored.startswith(GENERATED_SECRET_PREFIX):
            return hmac.compare_digest(stored, hash_generated_secret(client_secret))
        return self._memory.contains(client_secret, stored)

    def _accepted_hashes(self, client: Client) -> tuple[str, ...]:
        """Return the secret hashes that are accepted now.

        The time is needed after a rotation only. It follows the clock of Redis without a call (see
        `RegistryCaches.now_ms`).
        """
        return client.accepted_secret_hashes(self._now_ms() if client.previous_secret_hash else 0)

    async def _verify_slowly(self, candidates: Candidates, network: str) -> Client:
        for client, reading in candidates[:-1]:
            with suppress(InvalidClient):
                return await self._verify_secret(client, reading, network)
        return await self._verify_secret(*candidates[-1], network)

    @asynccontextmanager
    async def _take_turn(self, counters: Counters) -> AsyncIterator[None]:
        """Run one caller at a time for the same counters.

        Raises TemporarilyUnavailable if a caller would wait for more than QUEUE_TIMEOUT_SECONDS.
        """
        lock = self._turns.setdefault(counters, asyncio.Lock())
        started_at = time.monotonic()
        try:
            async with asyncio.timeout(QUEUE_TIMEOUT_SECONDS):
                await lock.acquire()
        except TimeoutError:
            raise TemporarilyUnavailable("checks_queue_full", retry_after_seconds=1) from None
        finally:
            charge_wait(started_at)
        try:
            yield
        finally:
            lock.release()

    async def _verify_secret(self, client: Client | None, reading: ClientCredentials, network: str) -> Client:
        if client is None:
            raise InvalidClient("client_unknown")
        check_secret_presence(client.is_public, reading)
        if not await self._is_right(client, reading.client_secret or "", network):
            raise InvalidClient("client_secret_wrong")
        return client

    async def _is_right(self, client: Client, client_secret: str, network: str) -> bool:
        for stored in self._accepted_hashes(client):
            if stored.startswith(GENERATED_SECRET_PREFIX):
                continue  # `_is_known` has compared it already, and it does not match
            right, _ = await self._secrets.verify(client_secret, stored, network)
            if right:
                self._memory.remember(client_secret, stored)
                return True
        return False


@lru_cache(_MAX_ENTRIES)
def _make_counters(allowed: tuple[int, int], client_ids: tuple[str, ...], prefixes: Prefixes) -> Counters:
    """Return the counters of one attempt, which share one hash tag.

    Each client at the address is counted, and the address itself.
    """
    most, window_ms = allowed
    of_clients = [
        counter
        for client_id in dict.fromkeys(client_ids)
        for counter in make_address_counters("client", prefixes, allowed, client_id)
    ]
    return (*of_clients, *make_address_counters("client", prefixes, (ADDRESS_FACTOR * most, window_ms)))
