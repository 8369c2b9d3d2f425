"""Workers on a Redis of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.config.settings import load_settings
from service.worker import Worker
from tests.conftest import SECRET_KEY


@asynccontextmanager
async def worker_at(url: str) -> AsyncIterator[Worker]:
    worker = Worker(load_settings({"REDIS_URL": url, "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY}), lambda: 0)
    yield worker
    await worker.close()
