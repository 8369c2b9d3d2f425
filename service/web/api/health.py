"""GET /healthz, the liveness probe, and GET /readyz, the readiness probe.

An instance is live if its process responds. It is ready if Redis runs our scripts and evicts nothing, a secret key of
the instance is in use there, the seed file is applied, and the process is not shutting down.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextvars import Context
from dataclasses import dataclass, field
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from service.crypto.keyring import make_access_token
from service.gateway.lookup import BearerLookup
from service.observability.metrics import CacheCounts
from service.redis_client.deadline import StoreUnavailable, with_own_budget
from service.registry.cache import ClientCache
from service.registry.seed_file.keeper import SeedKeeper
from service.registry.warnings import FOREIGN_KEY
from service.store.client import StoreClient
from service.store.reports.readiness import find_obstacle
from service.store.secret_keys import SecretKeys
from service.web.request.state import ENDING

REMEMBERED_SECONDS: Final = 0.5

_UNSEEDED: Final = "the seed file is not loaded yet"
_UNKNOWN_TOKEN: Final = make_access_token("000").text
_UNKNOWN_CLIENT_ID: Final = ""
"""A client_id that does not exist, like the token above. The readiness probe looks both up.

Redis may refuse this user one kind of key and serve another, so each kind of read is probed.
"""

log = logging.getLogger("service.health")


@dataclass(slots=True)
class HealthEndpoint:
    _redis: StoreClient
    _bearer: BearerLookup
    _counts: CacheCounts
    _clients: ClientCache
    _secret_keys: SecretKeys
    _seed_keeper: SeedKeeper
    remembered_seconds: float = REMEMBERED_SECONDS
    _remembered_until: float = field(default=0.0, init=False)
    _check: asyncio.Task[str] | None = field(default=None, init=False)
    _last_reason: str = field(default="", init=False)

    async def live(self, _: Request) -> Response:
        return _render(200, "alive")

    async def ready(self, request: Request) -> Response:
        if request.scope.get("state", {}).get(ENDING, False):
            return _render(503, "this instance is shutting down")
        obstacle = await self._share_check()
        if obstacle == _UNSEEDED:
            done, of = self._seed_keeper.progress
            return _render(503, obstacle, done=done, of=of)
        return _render(503, obstacle) if obstacle else _render(200, "ready")

    async def _share_check(self) -> str:
        """Return the result of a check of Redis that is running, or began less than `remembered_seconds` ago.

        Otherwise start a new check. A cancelled probe does not cancel the check, because other probes may wait for it.
        """
        now = time.monotonic()
        if self._check is None or (self._check.done() and now >= self._remembered_until):
            self._remembered_until = now + self.remembered_seconds
            # The check belongs to no request, so its log lines must not carry the trace of the first probe.
            self._check = asyncio.create_task(self.describe_obstacle(), context=Context())
        return await asyncio.shield(self._check)

    async def describe_obstacle(self) -> str:
        """Return a public text that states the obstacle, or an empty text. Log a change.

        Probes come every few seconds, so an unchanged reason is logged once. All checks run concurrently, so that a
        slow Redis has time to reply to each.
        """
        self._counts.count_lookup()
        try:
            found, is_key_in_use, is_seed_in_force, *_ = await asyncio.gather(
                with_own_budget(find_obstacle(self._redis)),
                with_own_budget(self._secret_keys.are_in_use()),
                with_own_budget(self._seed_keeper.is_in_force()),
                with_own_budget(self._bearer.lookup(_UNKNOWN_TOKEN)),
                with_own_budget(self._clients.find(_UNKNOWN_CLIENT_ID)),
            )
            foreign_key = "" if is_key_in_use else FOREIGN_KEY
            obstacle = reason = found or foreign_key or ("" if is_seed_in_force else _UNSEEDED)
        except StoreUnavailable as error:
            obstacle, reason = "Redis is unavailable or cannot serve requests", str(error)
        if reason != self._last_reason:
            level, words = (logging.WARNING, f"not ready: {reason}") if reason else (logging.INFO, "ready again")
            log.log(level, words)
            self._last_reason = reason
        return obstacle


def _render(status: int, words: str, **numbers: int) -> Response:
    headers = {"Cache-Control": "no-store"} | ({"Retry-After": "1"} if status == 503 else {})
    return Response(msgspec.json.encode({"status": words} | numbers), status, headers, "application/json")
