"""Lookup of the grant of a bearer token: in a cache that Redis invalidates, otherwise by one GET.

An invalidation from Redis (a token was revoked, a key expired, the database was emptied) removes cached grants as soon
as it arrives. Without a live connection a cached grant is used for one second at most; see
redis_client/managed_connection.py. The expiry is also computed here, since Redis sends the invalidation of an expired
key only when it deletes the key.

Clauses: RFC 6749 §7, RFC 6750 §3.1, SPEC §4.5
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from typing import Final

from ..protocol.bearer import AccessGrant
from ..protocol.token_form import DIGEST_BYTES, RANDOM_TOKEN_CHARACTERS, SHARD, encode, is_access_token
from ..redis_client.deadline import CallObserver, StoreUnavailable, read_clock, watch_call
from ..redis_client.managed_connection import ConnectionOptions, ManagedConnection
from ..redis_client.router import Router
from ..redis_client.tracked_cache import STALE, TrackedCache
from ..redis_client.url import parse_redis_url, without_password
from .access_record import ACCESS_KIND, PROBE_KEYS, access_key, parse_grant
from .watch import SILENCE_SECONDS, Reason, Watch, Watches

MAX_LIVE: Final = 100_000
MAX_UNKNOWN: Final = 10_000

UNKNOWN_SECONDS: Final = 1.0
"""The time for which a token is cached as unknown, which absorbs a flood of requests.

A token cannot be presented before it exists, so a new token is never taken for unknown.
"""


class BearerLookup:
    """The lookup of bearer tokens. Make one for each event loop, and share it. It connects at the first lookup.

    Close it at the end, or use it in an `async with`.

    `redis_url` takes all forms of the service's REDIS_URL. A malformed one raises ValueError. The service's worker
    gives its router instead. The connections of that router stay open when the lookup is closed.

    Without `memory` every lookup asks Redis. `most_live` and `most_unknown` bound the cache; the tokens that were not
    used for longest are dropped first. A watch ends `silence_seconds` after the last moment at which its token is known
    to have been live. Responses of the `stream_types`, such as `application/x-ndjson`, end with their token, as event
    streams do. `observe` is called after each lookup that asked Redis. `clock_offset_ms` moves the clock and is for
    tests only.
    """

    stream_types: Collection[str] = ("text/event-stream",)

    def __init__(
        self,
        redis_url: str | Router,
        *,
        memory: bool = True,
        most_live: int = MAX_LIVE,
        most_unknown: int = MAX_UNKNOWN,
        silence_seconds: float = SILENCE_SECONDS,
        stream_types: tuple[str, ...] = (),
        observe: CallObserver = lambda *_: None,
        clock_offset_ms: Callable[[], int] = int,
    ) -> None:
        self._is_shared = isinstance(redis_url, Router)
        self._router = redis_url if isinstance(redis_url, Router) else _make_router(redis_url)
        self.stream_types = {*self.stream_types, *map(str.lower, stream_types)}
        self._memory = memory
        self._observe = observe
        self._clock_offset_ms = clock_offset_ms
        self._live: TrackedCache[bytes, AccessGrant] = TrackedCache(most_live)
        self._unknown: TrackedCache[bytes, bool] = TrackedCache(most_unknown)
        self._watches = Watches(self._ask_for, silence_seconds=silence_seconds)
        self._router.listen(ACCESS_KIND, self.invalidate)

    async def __aenter__(self) -> BearerLookup:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def lookup(self, token: str) -> AccessGrant | None:
        """Return the grant of the token, or None if the token is unknown, expired, revoked or no access token of ours.

        Raises StoreUnavailable if the token cannot be checked. The caller must then refuse the request.
        """
        if len(token) != RANDOM_TOKEN_CHARACTERS:
            return None
        digest = _digest(token)
        grant = self._live.get(digest, None)
        if grant is not None or not is_access_token(token) or self._unknown.get(digest, False):
            return grant
        return await watch_call(self._observe, "lookup", self._ask(token, digest))

    def watch(self, token: str) -> asyncio.Future[Reason]:
        """Return a future of the reason for which the token is no longer live: "expired" or "revoked".

        The reason is "unavailable" if Redis could not be asked for too long, or if the lookup was closed. Cancel the
        future when it is no longer needed. Raises ValueError for a text that is no access token of ours.
        """
        if not is_access_token(token):
            raise ValueError("this is not an access token")
        return self._watches.add(access_key(token[SHARD], encode(_digest(token))))

    def now_ms(self) -> int:
        """Return Redis time in ms since 1970, for comparison with the times of a grant.

        Raises StoreUnavailable before the first lookup.
        """
        return self._router.now_ms() + self._clock_offset_ms()

    async def close(self) -> None:
        """End the watches, and close the connections unless they are shared. A later lookup would open new ones."""
        self._watches.end_all()
        if not self._is_shared:
            await self._router.close()

    def _ask(self, token: str, digest: bytes) -> Awaitable[AccessGrant | None]:
        """Look the token up in Redis.

        A live token is cached from its second use on, so tokens that are used once, and garbage, cost Redis no memory.
        """
        is_tracked = self._memory and self._live.find_last(digest) is not None
        key = access_key(token[SHARD], encode(digest))

        def keep(source: ManagedConnection | None, record: bytes | None) -> AccessGrant | None:
            """Return the grant, and cache it unless its slot has a new owner, which would not send invalidations."""
            grant = None if record is None else parse_grant(record)
            if source is None or not self._memory or not self._router.serves(key, source):
                return grant
            if grant is None:
                self._live.discard(digest)
                self._unknown.put(digest, True, read_clock() + UNKNOWN_SECONDS, source.trust)
            else:
                until = source.deadline(grant.expires_at_ms - self._clock_offset_ms()) if is_tracked else STALE
                self._live.put(digest, grant, until, source.trust)
            return grant

        return self._router.ask(key, ("GET", key), keep, is_read=True, is_tracked=is_tracked)

    async def _ask_for(self, watch: Watch) -> None:
        """Read the key of a watch. Raises StoreUnavailable at once if not connected to Redis."""
        asked_at = read_clock()
        if self._router.topology.find_connected(watch.key, is_read=True) is None:
            raise StoreUnavailable("not connected to Redis")

        def note(source: ManagedConnection | None, record: bytes | None) -> None:
            if record is None:
                self._watches.end(watch, "revoked")
                return
            grant, expires_at, trust = parse_grant(record), watch.expires_at, None
            if source is not None:
                expires_at = source.deadline(grant.expires_at_ms - self._clock_offset_ms())
                if source.trust.until and self._router.serves(watch.key, source):
                    trust = source.trust
            self._watches.note(watch, asked_at, expires_at, trust)

        await self._router.ask(watch.key, ("GET", watch.key), note, is_read=True, is_tracked=True)

    def invalidate(self, keys: Sequence[bytes] | None) -> None:
        """Forget tokens by their keys, or all tokens if `keys` is None."""
        if keys is None:
            self._live.clear()
            self._unknown.clear()
            self._watches.doubt_all()
            return
        for key in keys:
            self._watches.doubt(key.decode(errors="replace"))
            with suppress(ValueError):  # the key is not that of an access token
                self._live.discard(urlsafe_b64decode(key.rpartition(b":")[2] + b"=="))


def _digest(token: str) -> bytes:
    return sha256(token.encode(errors="replace")).digest()[:DIGEST_BYTES]


def _make_router(text: str) -> Router:
    """Return a router for the masters behind a URL.

    Raises ValueError for a malformed URL, and ImportError for a URL of Sentinels if redis-py is not installed.
    """
    try:
        url = parse_redis_url(text)
    except ValueError as expected:
        raise ValueError(f"redis_url: expected {expected}") from None
    if url.kind == "sentinel" and find_spec("redis") is None:
        raise ImportError(
            f"redis_url: {without_password(text)!r}: Sentinels need the package redis: "
            "install opaque-token-service-gateway[sentinel]"
        )
    return Router(ConnectionOptions(url, "lookups", probe_keys=PROBE_KEYS))
