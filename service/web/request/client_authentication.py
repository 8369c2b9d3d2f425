"""The authentication of clients: credentials, client, known secret, throttle, check.

A secret that was verified before is verified again without a slow hash, and mostly without asking Redis.

Clauses: RFC 6749 §2.3, §2.3.1, §3.2.1, §10.1, §10.10, RFC 7009 §2.1, SPEC §5.1
"""

from __future__ import annotations

import asyncio
import hmac
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from starlette.requests import Request

from service.crypto.hashing_pool import HashingPool
from service.crypto.keyring import GENERATED_SECRET_PREFIX, hash_generated_secret
from service.protocol.client import Client
from service.protocol.errors import ClientThrottled, InvalidClient, OAuthError, TemporarilyUnavailable
from service.protocol.parameters import ClientCredentials, Form, check_secret_presence, parse_client_credentials
from service.redis_client.deadline import charge_wait
from service.registry.cache import ClientCache
from service.registry.seed_file.keeper import SeedKeeper
from service.store.attempts import QUEUE_TIMEOUT_SECONDS, Attempts, Counter, Exhausted, Prefixes, make_address_counters
from service.web.request.client_address import get_prefixes
from service.web.request.reading import list_header_values
from service.web.request.state import CLIENT_ID

ADDRESS_FACTOR: Final = 3
"""The limit of failures for an address and all clients, as a multiple of the limit for an address and one client."""

ADMITTED_SECONDS: Final = 1.0
"""The time for which a right secret is accepted without another request for room under the rate limit."""

_MAX_ENTRIES: Final = 10_000

Candidates = list[tuple[Client, ClientCredentials]]
"""The possible readings of the credentials, each with the registered client that it names."""


class AuthenticatedClient(NamedTuple):
    client: Client
    secret_used: bool


class VerifiedSecretCache:
    """A cache of correct client secrets, so that a busy client pays for the slow hash once per worker.

    The cache maps a stored hash to a digest of hash and secret, under a key of this process. A rotated secret has a new
    stored hash, so the old entry no longer matches. A secret that the service generated needs no entry, because it is
    compared by one SHA-256.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._digests: dict[str, bytes] = {}

    def remember(self, client_secret: str, stored_hash: str) -> None:
        if len(self._digests) >= _MAX_ENTRIES:
            self._digests.clear()
        self._digests[stored_hash] = self._digest(client_secret, stored_hash)

    def contains(self, client_secret: str, stored_hash: str) -> bool:
        if stored_hash.startswith(GENERATED_SECRET_PREFIX):
            return hmac.compare_digest(stored_hash, hash_generated_secret(client_secret))
        return hmac.compare_digest(self._digests.get(stored_hash, b""), self._digest(client_secret, stored_hash))

    def _digest(self, client_secret: str, stored_hash: str) -> bytes:
        return blake2b(f"{stored_hash}\n{client_secret}".encode(), digest_size=32, key=self._key).digest()


@dataclass(slots=True)
class _Caller:
    """The use of a client_id from one address: its counters, and what this worker knows of its checks.

    Until `blocked_until` or `admitted_until`, by the monotonic clock, Redis need not be asked for room. `check_ended`
    is set at the end of the running check.
    """

    counters: tuple[Counter, ...]
    network: str
    blocked_until: float = 0.0
    admitted_until: float = 0.0
    check_ended: asyncio.Event | None = None


@dataclass
class ClientAuthenticator:
    """The authentication of clients. `_allowed` is the limit of one address: a count and a window in milliseconds."""

    _clients: ClientCache
    _attempts: Attempts
    _allowed: tuple[int, int]
    _secrets: HashingPool
    _now_ms: Callable[[], int]
    _seed_keeper: SeedKeeper
    admitted_seconds: float = ADMITTED_SECONDS
    _memory: VerifiedSecretCache = field(default_factory=VerifiedSecretCache, init=False)
    _callers: dict[tuple[object, ...], _Caller] = field(default_factory=dict, init=False)

    async def authenticate(self, request: Request, form: Form) -> AuthenticatedClient:
        """Return the client that the request authenticates. All readings of one request count as one attempt.

        A public client has no secret that could be guessed, so no rate limit applies to it. Raises InvalidClient,
        InvalidRequest if two methods are mixed, or ClientThrottled past the limit. Raises TemporarilyUnavailable if too
        many checks wait, or if the client is refused while the seed file is not in force.
        """
        readings = parse_client_credentials(list_header_values(request.scope, b"authorization"), form)
        mark = self._seed_keeper.in_force
        try:
            found = [(await self._clients.find(reading.client_id), reading) for reading in readings]
            candidates = [(client, reading) for client, reading in found if client is not None]
            request.scope[CLIENT_ID] = candidates[0][0].client_id if candidates else ""
            for client, reading in candidates:
                if client.is_public and reading.client_secret is None:
                    return AuthenticatedClient(client, secret_used=False)
            named = [reading.client_id for _, reading in candidates] or [readings[0].client_id]
            caller = self._get_caller(mark, tuple(named), get_prefixes(request))
            return AuthenticatedClient(await self._check(candidates, caller, mark), secret_used=True)
        except OAuthError as refusal:
            await self._seed_keeper.check_final(refusal, mark)
            raise

    async def _check(self, candidates: Candidates, caller: _Caller, mark: str) -> Client:
        """Return the client whose secret is right.

        Past the limit, every request is refused before its secret is checked. The refusal therefore reveals nothing
        about the secret.

        Requests that arrive together are checked once. At the end of that check all others continue in one turn of the
        event loop; a lock would let one continue in each turn. If the seed came or went while a request waited, a
        secret that is not known to be right is refused without a check, because the client must be looked up again.
        """
        started_at = now = time.monotonic()
        while True:
            if now < caller.blocked_until:
                wait_seconds = math.ceil(caller.blocked_until - now)
                raise ClientThrottled("client_throttled", retry_after_seconds=wait_seconds)
            known = self._find_known_right(candidates)
            if known is not None and now < caller.admitted_until:
                return known
            if known is None and mark != self._seed_keeper.in_force:
                raise InvalidClient("client_unknown")
            if caller.check_ended is None:
                return await self._verify_within_limit(candidates, known, caller)
            try:
                async with asyncio.timeout(started_at + QUEUE_TIMEOUT_SECONDS - now):
                    await caller.check_ended.wait()
            except TimeoutError:
                raise TemporarilyUnavailable("checks_queue_full", retry_after_seconds=1) from None
            finally:
                charge_wait(now)
            now = time.monotonic()

    def _get_caller(self, mark: str, client_ids: tuple[str, ...], prefixes: Prefixes) -> _Caller:
        """Return the caller. Each client at the address is counted, and the address itself, under one hash tag.

        Failures before the seed file is in force have counters of their own. They limit guesses then, but do not keep
        an honest client out once its record is there.
        """
        purpose = "client" if mark else "unseeded_client"
        caller = self._callers.get((purpose, client_ids, prefixes))
        if caller is None:
            if len(self._callers) >= _MAX_ENTRIES:
                self._callers.clear()
            most, window_ms = self._allowed
            counters = make_address_counters(purpose, prefixes, (ADDRESS_FACTOR * most, window_ms))
            for client_id in reversed(dict.fromkeys(client_ids)):
                counters = (*make_address_counters(purpose, prefixes, self._allowed, client_id), *counters)
            caller = self._callers[purpose, client_ids, prefixes] = _Caller(counters, prefixes[-1].network)
        return caller

    def _find_known_right(self, candidates: Candidates) -> Client | None:
        """Return the client of the first reading whose secret is right without a slow hash, or None."""
        for client, reading in candidates:
            for stored in self._accepted_hashes(client):
                if reading.client_secret is not None and self._memory.contains(reading.client_secret, stored):
                    return client
        return None

    def _accepted_hashes(self, client: Client) -> tuple[str, ...]:
        """Return the secret hashes that are accepted now.

        The time is needed after a rotation only. It follows the clock of Redis without a call (see
        `RegistryCaches.now_ms`).
        """
        return client.accepted_secret_hashes(self._now_ms() if client.previous_secret_hash else 0)

    async def _verify_within_limit(self, candidates: Candidates, known: Client | None, caller: _Caller) -> Client:
        """Reserve one attempt, check each reading unless the client is known, and count one failure if all are wrong.

        A right secret must be refused past the limit as well; otherwise a flood of guesses would still find it. After
        one that passed, Redis is not asked again for ADMITTED_SECONDS, unless a check on this worker fails.
        """
        caller.admitted_until = 0.0
        caller.check_ended = ended = asyncio.Event()
        try:
            async with self._attempts.checking(caller.counters, failure=InvalidClient):
                client = known or await self._verify(candidates, caller.network)
        except Exhausted as error:
            caller.blocked_until = time.monotonic() + error.wait_ms / 1000
            raise ClientThrottled("client_throttled", retry_after_seconds=error.wait_seconds) from None
        finally:
            caller.check_ended = None
            ended.set()
        caller.admitted_until = time.monotonic() + self.admitted_seconds
        return client

    async def _verify(self, candidates: Candidates, network: str) -> Client:
        """Return the client of the first reading whose chosen secret is right by a slow hash.

        Otherwise raises InvalidClient, with the reason of the last reading. An unknown client fails like a wrong
        secret. A generated secret would have been found among the known ones.
        """
        refusal = InvalidClient("client_unknown")
        for client, reading in candidates:
            try:
                check_secret_presence(client.is_public, reading)
            except InvalidClient as error:
                refusal = error
                continue
            refusal, client_secret = InvalidClient("client_secret_wrong"), reading.client_secret or ""
            for stored in self._accepted_hashes(client):
                if not stored.startswith(GENERATED_SECRET_PREFIX):
                    right, _ = await self._secrets.verify(client_secret, stored, network)
                    if right:
                        self._memory.remember(client_secret, stored)
                        return client
        raise refusal
