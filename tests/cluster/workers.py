"""Workers on a Redis of the test's own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from service.app import build_app
from service.config.settings import load_settings
from service.protocol.user import identify_user
from service.worker import Worker
from tests.cluster.nodes import Cluster, Shard
from tests.conftest import SECRET_KEY, SEED, http_client_for, running_lifespan


@asynccontextmanager
async def worker_at(url: str) -> AsyncIterator[Worker]:
    worker = Worker(load_settings({"REDIS_URL": url, "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY}), lambda: 0)
    yield worker
    await worker.close()


@asynccontextmanager
async def service_at(url: str, durability: str = "memory") -> AsyncIterator[tuple[Worker, httpx2.AsyncClient]]:
    settings = {
        "REDIS_URL": url,
        "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY,
        "TOKEN_SERVICE_SEED_FILE": str(SEED),
        "TOKEN_SERVICE_DURABILITY": durability,
        "LOG_LEVEL": "warning",
    }
    worker = Worker(load_settings(settings), lambda: 0)
    app = build_app(worker)
    async with running_lifespan(app), http_client_for(app) as http:
        yield worker, http


def shard_of(cluster: Cluster, username: str) -> Shard:
    identity = identify_user("main", username)
    return cluster.shards[cluster.node_of(f"family:{{{identity.shard}}}:x")]
