"""Values for the store and the protocol rules that follow from the settings."""

from __future__ import annotations

from service.config.settings import Settings
from service.embedded.data_folder import socket_path
from service.protocol.token_response import Lifetimes
from service.redis_client.durability import MEMORY, Durability
from service.redis_client.url import RedisUrl, parse_redis_url, without_password


def make_redis_url(settings: Settings) -> RedisUrl:
    if settings.redis_url is None:
        return RedisUrl(kind="single", path=str(socket_path(settings.data_dir)))
    return parse_redis_url(settings.redis_url)


def choose_durability(settings: Settings) -> Durability:
    """Return what a durable write waits for after the answer of Redis.

    The embedded store needs no wait: with durability "disk" it answers only when a change is on the disk.
    """
    return MEMORY if settings.embedded else settings.durability


def make_lifetimes(settings: Settings) -> Lifetimes:
    return Lifetimes(
        access_token_ms=settings.access_token_ttl_ms,
        refresh_token_ms=settings.refresh_token_ttl_ms,
        session_max_age_ms=settings.session_max_age_ms,
        code_ms=settings.code_ttl_ms,
        refresh_grace_ms=settings.refresh_grace_ms,
    )


def describe_store(settings: Settings, data_dir: str) -> str:
    """Return the store as it may be shown: the embedded one with its folder, or the URL without its password."""
    return f"the embedded store in {data_dir}" if settings.redis_url is None else without_password(settings.redis_url)
