"""GET /healthz: the process lives. GET /readyz: Redis runs our scripts and evicts nothing.

Clauses: none of the standards; SPEC is silent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from service.store.connection import StoreConnection, StoreUnavailable
from service.store.readiness import find_obstacle

log = logging.getLogger("service.health")


@dataclass(frozen=True, slots=True)
class HealthEndpoint:
    connection: StoreConnection
    is_seeded: Callable[[], bool]

    async def live(self, _: Request) -> Response:
        return _render(200, "alive")

    async def ready(self, _: Request) -> Response:
        obstacle = await self._find_obstacle()
        if obstacle is None:
            return _render(200, "ready")
        log.warning("not ready: %s", obstacle)
        return _render(503, obstacle)

    async def _find_obstacle(self) -> str | None:
        try:
            obstacle = await find_obstacle(self.connection)
        except StoreUnavailable:
            return "the store does not answer"
        return obstacle or (None if self.is_seeded() else "the seed file is not applied yet")


def _render(status: int, words: str) -> Response:
    headers = {"Cache-Control": "no-store"} | ({"Retry-After": "1"} if status == 503 else {})
    return Response(msgspec.json.encode({"status": words}), status, headers, "application/json")
