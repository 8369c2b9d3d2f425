"""Findings of the command `doctor`, and its checks that need only settings, records and the output of INFO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from service.config.settings import Settings, unknown_variables
from service.protocol.client import MIN_SECRET_CHARACTERS, PASSWORD, Client
from service.protocol.uri import is_loopback
from service.redis_client.url import RedisUrl
from service.registry.warnings import list_client_warnings

Level = Literal["good", "note", "warning", "trouble"]

_LONG_ACCESS_MS: Final = 3_600_000
_MAX_CODE_MS: Final = 600_000
_SPECIFIED_GRACE_MS: Final = 300_000
_MANY_TRACKED_KEYS: Final = 900_000
_WIDE_PREFIX: Final = {4: 8, 6: 16}


class Finding(NamedTuple):
    """A result of `doctor`.

    The level is `good` (checked and right), `note` (worth knowing), `warning` (may be intended) or `trouble` (must be
    fixed).
    """

    level: Level
    subject: str
    says: str


def look_at_settings(settings: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    for line in unknown_variables(environment):
        yield Finding("warning", "environment", line)
    for name, address in (("TOKEN_SERVICE_BASE_URL", settings.base_url), ("TOKEN_SERVICE_WEB_URL", settings.web_url)):
        if address.startswith("http:") and not is_loopback(urlsplit(address).hostname or ""):
            yield Finding("trouble", name, f"{address}: passwords and tokens would travel in the clear; expected https")
    if settings.base_url.startswith("https:") and not settings.trusted_proxies:
        yield Finding(
            "warning",
            "TOKEN_SERVICE_TRUSTED_PROXIES",
            "no proxy is trusted: behind a proxy all callers would share one address and its limits",
        )
    for network in settings.trusted_proxies:
        if network.prefixlen < _WIDE_PREFIX[network.version]:
            yield Finding(
                "trouble", "TOKEN_SERVICE_TRUSTED_PROXIES", f"{network}: any peer there may claim any address"
            )
    if settings.has_public_example_seed:
        yield Finding("trouble", "TOKEN_SERVICE_SEED_FILE", "the example seed, whose passwords are public")
    yield from _look_at_lifetimes(settings)
    if settings.log_level == "debug":
        yield Finding("warning", "LOG_LEVEL", "debug: a line for each lookup")


def _look_at_lifetimes(settings: Settings) -> Iterator[Finding]:
    if settings.access_token_ttl_ms > _LONG_ACCESS_MS:
        yield Finding("warning", "TOKEN_SERVICE_ACCESS_TOKEN_TTL", "more than an hour: meant to be short")
    if settings.code_ttl_ms > _MAX_CODE_MS:
        yield Finding("warning", "TOKEN_SERVICE_CODE_TTL", "more than ten minutes: RFC 6749 §4.1.2 advises less")
    if settings.refresh_grace_ms > _SPECIFIED_GRACE_MS:
        yield Finding("warning", "TOKEN_SERVICE_REFRESH_GRACE", "more than five minutes: a thief has as long unnoticed")
    if settings.refresh_grace_ms == 0:
        yield Finding("warning", "TOKEN_SERVICE_REFRESH_GRACE", "none: a lost answer to a refresh ends the session")
    if settings.session_max_age_ms is None:
        yield Finding("note", "TOKEN_SERVICE_SESSION_MAX_AGE", "none: a session that is used lives for ever")


def look_at_store_address(url: RedisUrl) -> Iterator[Finding]:
    far = [host for host, _ in url.nodes if not is_loopback(host)]
    if far and not url.tls:
        yield Finding("warning", "REDIS_URL", f"without TLS to {', '.join(far)}: only for a network of your own")
    if far and not url.password:
        yield Finding("trouble", "REDIS_URL", "no password: any program that reaches that Redis can end every session")


def look_at_clients(clients: Sequence[Client], now_ms: int) -> Iterator[Finding]:
    for client in clients:
        subject = f"client {client.client_id}"
        for warning in list_client_warnings(client):
            yield Finding("warning", subject, warning)
        if PASSWORD in client.grant_types:
            yield Finding("note", subject, "may use the password grant, which is for first-party apps only")
        if client.has_short_secret:
            says = f"its secret has fewer than {MIN_SECRET_CHARACTERS} characters and can be guessed"
            yield Finding("warning", subject, f"{says}; client rotate-secret makes a long one")
        if client.previous_secret_until_ms > now_ms:
            yield Finding("note", subject, "its secret was rotated, and the old one is good for a while yet")


def look_at_servers(
    memory: Sequence[Mapping[str, object]],
    persistence: Sequence[Mapping[str, object]],
    statistics: Sequence[Mapping[str, object]],
) -> Iterator[Finding]:
    """Check the sections `memory`, `persistence` and `stats` of INFO, one entry for each master."""
    for server in memory:
        policy = server.get("maxmemory_policy")
        if policy != "noeviction":
            says = f"maxmemory-policy is {policy}: sessions and marks of revocation may be dropped; expected noeviction"
            yield Finding("trouble", "Redis", says)
        if not server.get("maxmemory"):
            yield Finding(
                "warning",
                "Redis",
                "no maxmemory: if memory runs out, the kernel may end Redis. Set maxmemory below the free memory",
            )
    for server in persistence:
        if not server.get("aof_enabled"):
            says = "appendonly is off: a restart loses every session, or brings revoked tokens back"
            yield Finding("warning", "Redis", says)
        if server.get("aof_last_write_status", "ok") != "ok":
            yield Finding("trouble", "Redis", "the append-only file could not be written: look at its disk")
    for server in statistics:
        tracked = server.get("tracking_total_keys")
        if isinstance(tracked, int) and tracked >= _MANY_TRACKED_KEYS:
            yield Finding(
                "note",
                "Redis",
                f"it tracks {tracked} keys for caches. Beyond tracking-table-max-keys (1000000, if it is not set) it "
                "drops keys at random, and caches ask for them again: raise the limit if memory allows",
            )
