"""The web origins that Redis knows."""

from service.store.registry.clients import ORIGINS
from service.worker import Worker


async def is_origin(worker: Worker, origin: str) -> bool:
    """Return True if some client has a redirect URI at the origin."""
    return ORIGINS.parse(await worker.redis.read(*ORIGINS.command(origin)))
