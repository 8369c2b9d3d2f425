"""The command `doctor`, which looks for problems in the store, the records and the settings."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

import click

from service.admin.command import command, console
from service.admin.context import AdminContext
from service.admin.output import Advance, Fields, Output, format_bytes, format_span
from service.config.settings import PREFIX, choose_durability, make_redis_url, unknown_variables
from service.crypto.hash_kinds import find_hash_cost
from service.protocol.client import MIN_SECRET_CHARACTERS, Client, Lifetimes
from service.protocol.logout_token import LOGOUT_PATH
from service.protocol.provider import IdentityProvider, list_identity_risks
from service.protocol.provider_responses import InvalidProviderResponse, ProviderError
from service.protocol.scope import MAIN_REALM, REALMS
from service.protocol.uri import is_local, is_loopback, is_unprotected
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.url import Durability
from service.registry.warnings import FOREIGN_KEY, list_client_warnings
from service.store.reports.key_statistics import list_odd_keys
from service.store.reports.readiness import find_obstacle, find_write_obstacle
from service.system.process import count_usable_cores, find_memory_limit

Level = Literal["ok", "note", "warning", "error"]
"""Checked and right; worth knowing; maybe intended; must be fixed."""

_MARKS: Final[dict[Level, tuple[str, str]]] = {
    "ok": ("✓", "green"),
    "note": ("·", ""),
    "warning": ("!", "yellow"),
    "error": ("✗", "red"),
}
_SECRET_KEY: Final = f"{PREFIX}SECRET_KEY"
_MANY_TRACKED_KEYS: Final = 900_000
_TO_TRACK: Final = "tracked keys or valid access tokens: is tracking-table-max-keys (usually 1000000) well above that?"
_MUCH_MEMORY: Final = 0.8
_WIDE_PREFIX: Final = {4: 8, 6: 16}


class Finding(NamedTuple):
    level: Level
    subject: str
    message: str


@command(console, "doctor", examples=("doctor", "doctor --json"))
async def doctor(context: AdminContext, output: Output) -> None:
    """Check Redis, the records and the settings for problems. The exit status is 1 if something must be fixed."""
    with output.progress("Scanning all keys") as advance:
        findings = await _look(context, advance)
    lines = ((f"{_MARKS[each.level][0]} {each.subject}: {each.message}", _MARKS[each.level][1]) for each in findings)
    output.show([finding._asdict() for finding in findings], lines)
    troubles = sum(finding.level == "error" for finding in findings)
    if troubles:
        if not output.as_json:
            output.note(f"{troubles} to fix (marked ✗ above).", "red")
        raise click.exceptions.Exit(1)


async def _look(context: AdminContext, advance: Advance) -> list[Finding]:
    """Return the findings in the order in which problems should be fixed."""
    works = f"{context.settings.store_name} is reachable, accepts writes and runs the service's scripts"
    obstacles = (await find_obstacle(context.redis), await find_write_obstacle(context.redis))
    findings = _or_good("Redis", works, (Finding("error", "Redis", each) for each in obstacles if each))
    is_foreign = await context.secret_keys.are_foreign()
    findings += _or_good(_SECRET_KEY, "belongs to this Redis", _find((is_foreign, "error", _SECRET_KEY, FOREIGN_KEY)))
    of_keys, tokens = await _look_at_keys(context, advance)
    servers = await context.redis.read_info("default")
    if servers:
        is_single = make_redis_url(context.settings).kind == "single"
        found = look_at_servers(servers, needs_replicas=not is_single, tokens=tokens // len(servers))
        findings += _or_good("Redis", "noeviction, append-only file, memory limit", found)
    else:
        findings.append(Finding("note", "Redis", "the Redis user lacks INFO permission, so memory was not checked"))
    durability = choose_durability(context.settings)
    if durability.level != "memory":
        findings.append(await _look_at_durability(context, durability))
    findings += await _look_at_slots(context)
    findings += of_keys
    findings += [finding async for finding in _look_at_ids(context)]
    findings += [finding async for finding in _look_at_certificates(context)]
    clients = list((await context.registry.clients.list_all()).values())
    findings += _or_good("settings", "nothing unsafe", _look_at_settings(context, os.environ, clients))
    findings += _or_good("clients", f"{len(clients)}, nothing unsafe", _look_at_clients(clients, context.lifetimes))
    findings += [finding async for finding in _look_at_hashes(context, clients)]
    for name, provider in (await context.registry.realms.list_all()).items():
        findings += [finding async for finding in _look_at_realm(context, name, provider)]
    return findings


def _or_good(subject: str, says: str, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, or one of level `ok` if there are none."""
    return list(findings) or [Finding("ok", subject, says)]


def _find(*checks: tuple[object, Level, str, str]) -> Iterator[Finding]:
    """Yield a finding for each check whose first item is true. The others are its level, its subject and its text."""
    yield from (Finding(level, subject, says) for is_found, level, subject, says in checks if is_found)


def look_at_servers(servers: Iterable[Fields], *, needs_replicas: bool = False, tokens: int = 0) -> Iterator[Finding]:
    """Check INFO of each master. Gateways may cache the live access tokens, of which a master has so many."""
    for server in servers:
        used, limit = server.get("used_memory", 0), server.get("maxmemory", 0)
        level: Level = "warning" if used < limit else "error"
        of_memory = f"{format_bytes(used)} of {format_bytes(limit)} memory is in use: raise maxmemory"
        is_lone = needs_replicas and not server.get("connected_slaves")
        policy, tracked = server.get("maxmemory_policy"), max(server.get("tracking_total_keys", 0), tokens)
        evicts, has_written = policy != "noeviction", server.get("aof_last_write_status", "ok") == "ok"
        yield from _find(
            (evicts, "error", "Redis", f"maxmemory-policy is {policy}: sessions may be lost; expected noeviction"),
            (not limit, "warning", "Redis", "maxmemory is not set, so the kernel may kill Redis when memory runs out"),
            (limit and used >= _MUCH_MEMORY * limit, level, "Redis", of_memory),
            (is_lone, "warning", "Redis", "a master has no replica, so nothing takes over if it fails"),
            (not server.get("aof_enabled"), "warning", "Redis", "appendonly is off, so a restart loses all sessions"),
            (not has_written, "error", "Redis", "the append-only file could not be written: check its disk"),
            (tracked >= _MANY_TRACKED_KEYS, "note", "Redis", f"{tracked} {_TO_TRACK}"),
        )


async def _look_at_durability(context: AdminContext, durability: Durability) -> Finding:
    subject = f"TOKEN_SERVICE_DURABILITY={durability}"
    try:
        for digit in range(16):  # the shards 000, 100, … f00, which many masters of a cluster own
            async with context.redis.durable(f"{digit:x}00") as scripts:
                await scripts.leave_fence()
    except StoreUnavailable as problem:
        says = f"code exchanges and revocations return 503, because writes are not confirmed: {problem}"
        return Finding("error", subject, says)
    return Finding("ok", subject, "changes are confirmed")


async def _look_at_slots(context: AdminContext) -> list[Finding]:
    """Report slots that are moving key by key. Changes of their users fail until the slots have moved."""
    nodes = await context.redis.list_slots()
    leaving = {slot for node in nodes for slot in node.leaving}
    forgotten = {slot for node in nodes for slot in node.arriving} - leaving
    kinds = (
        (leaving, "{} are moving or half moved, so changes for their users wait and return 503 after 1.8 s"),
        (forgotten, "{} are half moved, but their owner no longer reports it: logouts miss keys on the other master"),
    )
    told = [says.format(", ".join(map(str, sorted(slots)))) for slots, says in kinds if slots]
    return [Finding("error", "Redis Cluster", f"slots {says}. See docs/how-to/troubleshooting.md") for says in told]


async def _look_at_keys(context: AdminContext, advance: Advance) -> tuple[list[Finding], int]:
    """Return the findings and the number of live access tokens."""
    endless, foreign, tokens = await list_odd_keys(context.redis, advance)
    says = "of {} without an expiry time: {}"
    found = [Finding("error", "keys", says.format(kind, ", ".join(keys))) for kind, keys in sorted(endless.items())]
    if foreign:
        says = f"of other programs share the memory of this Redis: {', '.join(foreign)}"
        found.append(Finding("warning", "keys", says))
    if await context.registry.has_pending():
        late = "an interrupted change has sessions left to revoke; a worker or the next change revokes them"
        found.append(Finding("warning", "pending revocations", late))
    return found or [Finding("ok", "keys", "every key that should expire has an expiry time")], tokens


async def _look_at_ids(context: AdminContext) -> AsyncIterator[Finding]:
    """Report keys of ids that lead to no user, and write missing ones. Under the lock, suspects are looked at again."""
    ids, strays, written = context.registry.ids, list[str](), 0
    async for keys in context.redis.scan("id:{*}:*"):
        if await ids.list_strays(keys):
            async with context.registry.make_lock():
                strays += await ids.list_strays(keys)
    async for keys in context.redis.scan("user:{*}:*"):
        if await ids.list_missing(keys):
            async with context.registry.make_lock():
                missing = await ids.list_missing(keys)
                written += len(missing) - len(await ids.claim(missing))
    some = ", ".join(strays[:5])
    of_strays = f"{len(strays)} belong to no user, because a change was interrupted. New users may take them: {some}"
    of_missing = f"{written} were missing, because Redis lost a write. They are restored"
    for finding in _find((strays, "note", "ids", of_strays), (written, "warning", "ids", of_missing)):
        yield finding


async def _look_at_certificates(context: AdminContext) -> AsyncIterator[Finding]:
    """Look at the certificates of the public addresses, and of Redis with its Sentinels."""
    from service.crypto.certificates import fetch_certificate, find_expiry  # cryptography, for this command alone

    settings, url = context.settings, make_redis_url(context.settings)
    nodes = (*url.nodes, *(master.node for master in await context.redis.list_masters()))
    servers = {node: "REDIS_URL" for node in nodes if node and url.tls}
    for name, address in (("WEB_URL", settings.web_url), ("BASE_URL", settings.base_url)):
        if (parts := urlsplit(address)).scheme == "https":
            servers[parts.hostname or "", parts.port or 443] = f"{PREFIX}{name}"
    for (host, port), subject in servers.items():
        try:
            expiry = find_expiry(await fetch_certificate(host, port))
        except (OSError, ValueError) as error:
            yield Finding("note", subject, f"the certificate of {host}:{port} cannot be read from here: {error}")
            continue
        if expiry:
            has_expired, sentence = expiry
            yield Finding("error" if has_expired else "warning", subject, f"{host}:{port}: {sentence}")


def _look_at_lifetimes(lifetimes: Lifetimes) -> Iterator[tuple[str, str]]:
    """Yield the name of each lifetime that looks unsafe, and the reason."""
    if lifetimes.access_token_ms > 3_600_000:
        yield "ACCESS_TOKEN_TTL", "more than an hour"
    if lifetimes.refresh_grace_ms > 300_000:
        yield "REFRESH_GRACE", "more than five minutes gives a thief more time"
    if lifetimes.refresh_grace_ms == 0:
        yield "REFRESH_GRACE", "no grace period: a lost refresh response ends the session"


def _look_at_settings(
    context: AdminContext, environment: Mapping[str, str], clients: Sequence[Client]
) -> Iterator[Finding]:
    settings = context.settings
    for line in unknown_variables(environment):
        yield Finding("warning", "environment", line)
    for name, address in (("BASE_URL", settings.base_url), ("WEB_URL", settings.web_url)):
        if is_unprotected(address):
            says = f"{address}: passwords and tokens would be sent unencrypted; expected https"
            yield Finding("error", f"TOKEN_SERVICE_{name}", says)
    for network in settings.trusted_proxies:
        if network.prefixlen < _WIDE_PREFIX[network.version]:
            says = f"{network}: every host in this network is trusted to set X-Forwarded-For"
            yield Finding("error", "TOKEN_SERVICE_TRUSTED_PROXIES", says)
    url, keys = make_redis_url(settings), len(settings.secret_keys)
    far = ", ".join(host for host, _ in url.nodes if not is_loopback(host))
    is_without_proxy = settings.base_url.startswith("https:") and not settings.trusted_proxies
    every = (context.lifetimes, *map(context.lifetimes.of, clients))
    age = format_span(max(lifetimes.refresh_token_ms for lifetimes in every))
    of_keys = f"{keys} keys. Remove the last one {age} (a refresh token's lifetime) after every instance uses the first"
    for name, says in _look_at_lifetimes(context.lifetimes):
        yield Finding("warning", f"{PREFIX}{name}", says)
    yield from _find(
        (far and not url.tls, "warning", "REDIS_URL", f"no TLS to {far}: use it only on a private network"),
        (far and not url.password, "error", "REDIS_URL", "no password: any program there can revoke all sessions"),
        (is_without_proxy, "warning", f"{PREFIX}TRUSTED_PROXIES", "not set, so callers behind a proxy share one limit"),
        (settings.has_public_example_seed, "error", f"{PREFIX}SEED_FILE", "the example seed with public passwords"),
        (settings.code_ms > 600_000, "warning", f"{PREFIX}CODE_TTL", "more than ten minutes (RFC 6749)"),
        (
            not settings.session_max_age_ms,
            "note",
            f"{PREFIX}SESSION_MAX_AGE",
            "not set, so sessions in use never expire",
        ),
        (keys > 1, "note", _SECRET_KEY, of_keys),
    )


def _look_at_clients(clients: Sequence[Client], lifetimes: Lifetimes) -> Iterator[Finding]:
    known = set(_look_at_lifetimes(lifetimes))
    for client in clients:
        subject = f"client {client.client_id}"
        yield from (Finding("warning", subject, warning) for warning in list_client_warnings(client))
        for name, says in sorted({*_look_at_lifetimes(lifetimes.of(client))} - known):
            yield Finding("warning", subject, f"{name.lower()}: {says}")
        short = f"its secret is shorter than {MIN_SECRET_CHARACTERS} characters: replace it with client rotate-secret"
        yield from _find((client.has_short_secret, "warning", subject, short))


async def _look_at_hashes(context: AdminContext, clients: Sequence[Client]) -> AsyncIterator[Finding]:
    """Count the password hashes of all users of realm main by kind, and compare the largest hash with the memory."""
    kinds: Counter[str] = Counter()
    sizes_kib = {cost.memory_kib for client in clients if (cost := find_hash_cost(client.client_secret_hash or ""))}
    async for user in context.registry.users.scan():
        if user.realm == MAIN_REALM:
            cost = find_hash_cost(user.password_hash or "")
            kinds["none" if user.password_hash is None else cost.kind if cost else "unreadable"] += 1
            sizes_kib.add(cost.memory_kib if cost else 0)
    says = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "no users"
    is_mixed = bool(kinds.keys() - {"argon2id", "none"})
    yield Finding("note" if is_mixed else "ok", "password hashes", says)
    limit, workers, cores = find_memory_limit(), context.settings.workers, count_usable_cores()
    needed = estimate_memory(workers, cores, largest_kib := max(sizes_kib, default=0))
    if limit is not None and needed > limit:
        takes = f"may need {format_bytes(needed)}, because the largest hash needs {format_bytes(1024 * largest_kib)}"
        says = f"{workers} workers on {cores} cores {takes}; the limit is {format_bytes(limit)}: raise it"
        yield Finding("warning", "memory", says)


def estimate_memory(workers: int, cores: int, largest_kib: int) -> int:
    """Return the bytes that an instance may take, by the calculation of docs/reference/limits.md."""
    return 1024 * (60 * 1024 + workers * ((110 + 38 * cores) * 1024 + largest_kib))


async def _look_at_realm(context: AdminContext, name: str, provider: IdentityProvider) -> AsyncIterator[Finding]:
    """Check a realm, and fetch the metadata of its identity provider, as the first login would."""
    subject = f"realm {name}"
    if name not in REALMS:
        yield Finding("warning", subject, f"this realm cannot be used: only {', '.join(REALMS)} can appear in a scope")
    for risk in list_identity_risks(provider.username_claim, trust_email=provider.trust_email):
        yield Finding("warning", subject, risk)
    sealed = provider.sealed_secret
    client_secret = context.keyring.open_sealed_text(f"realm:{name}", sealed) if sealed else ""
    if not client_secret:
        says = "no client secret" if client_secret == "" else "its client secret needs a key that is not configured"
        level: Level = "note" if client_secret == "" else "error"
        yield Finding(level, subject, f"{says}. If its provider expects one, set it in a seed file")
    from service.realms.provider.client import ProviderClient  # its libraries delay the list of commands
    from service.realms.provider.http_client import HttpClient

    http_client = HttpClient()
    conversation = ProviderClient(provider, client_secret, http_client, context.redis.read_clock_ms)
    try:
        server = await conversation.get_endpoints()
    except (InvalidProviderResponse, ProviderError) as problem:
        is_trial = is_local(provider.issuer)
        says = f"the identity provider's metadata cannot be used: {problem}"
        yield Finding("warning" if is_trial else "error", subject, says)
    else:
        yield Finding("ok", subject, f"browsers are sent to {server.authorization_endpoint}")
        logout_uri = f"{context.settings.base_url}{LOGOUT_PATH}{name}"
        works = f"back-channel logout URI to register at the provider: {logout_uri} (from this command's settings)"
        lacks = "no back-channel logout: it needs username_claim sub, an issuer and a jwks_uri"
        yield Finding("note", subject, works if provider.accepts_logouts(server) else lacks)
    finally:
        await http_client.close()
    redirect_uri = f"{context.settings.web_url}/authorization/callback"
    says = f"redirect URI to register at the provider: {redirect_uri} (from this command's settings)"
    yield Finding("note", subject, says)
