"""The command `doctor`, which looks for problems in the store, the records and the settings."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final

import click

from service.admin import checks
from service.admin.checks import Finding, Level
from service.admin.command import command, console
from service.admin.context import AdminContext
from service.admin.formatting import format_span
from service.admin.output import Advance, Output
from service.config.settings import Settings
from service.config.wiring import choose_durability, make_redis_url
from service.http_client.client import HttpClient
from service.protocol.provider import IdentityProvider, list_identity_risks
from service.protocol.provider_responses import InvalidProviderResponse, ProviderError
from service.protocol.scope import REALMS
from service.realms.provider.client import ProviderClient
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.durability import Durability
from service.store.reports.key_statistics import Statistics
from service.store.reports.readiness import find_obstacle

_WRONG_CLOCK_MS: Final = 10_000
_LOOKED_AT_SHARDS: Final = tuple(f"{number:x}00" for number in range(16))
_MARKS: Final[dict[Level, tuple[str, str]]] = {
    "good": ("✓", "green"),
    "note": ("·", ""),
    "warning": ("!", "yellow"),
    "trouble": ("✗", "red"),
}


@command(console, "doctor", examples=("doctor", "doctor --json"))
async def doctor(context: AdminContext, output: Output) -> None:
    """Check store, records and settings for problems. The exit status is 1 if something must be fixed."""
    with output.progress("Looking through all keys") as advance:
        findings = await _look(context, advance)
    for finding in findings:
        mark, style = _MARKS[finding.level]
        if not output.as_json:
            output.line({}, f"{mark} {finding.subject}: {finding.says}", style)
    if output.as_json:
        output.table([finding._asdict() for finding in findings], {}, "")
    troubles = sum(finding.level == "trouble" for finding in findings)
    if troubles:
        number = "1 problem was" if troubles == 1 else f"{troubles} problems were"
        if not output.as_json:
            output.note(f"{number} found (marked ✗ above).", style="red")
        raise click.exceptions.Exit(1)


async def _look(context: AdminContext, advance: Advance) -> list[Finding]:
    """Return the findings in the order in which problems should be fixed."""
    findings = [await _look_at_service(context)]
    sections = ("memory", "persistence", "stats")
    memory, persistence, statistics = [await context.redis.read_info(section) for section in sections]
    if not (memory and persistence and statistics):
        says = "this user may not call INFO, so memory, persistence and tracked keys were not looked at"
        findings.append(Finding("note", "Redis", says))
    findings += _or_good(
        "Redis", "noeviction, append-only file, memory limit", checks.look_at_servers(memory, persistence, statistics)
    )
    durability = choose_durability(context.settings)
    if durability.level != "memory":
        findings.append(await _look_at_durability(context, durability))
    findings += [finding async for finding in _look_at_slots(context)]
    findings.append(await _look_at_clock(context))
    findings += [finding async for finding in _look_at_keys(context, advance)]
    findings += _look_at_secret_keys(context.settings)
    findings += _or_good("settings", "nothing stands out", checks.look_at_settings(context.settings, os.environ))
    findings += checks.look_at_store_address(make_redis_url(context.settings))
    now_ms = await context.redis.read_clock_ms()
    clients = await context.registry.list_clients()
    findings += _or_good("clients", f"{len(clients)}, nothing stands out", checks.look_at_clients(clients, now_ms))
    for name, provider in (await context.registry.list_realms()).items():
        findings += [finding async for finding in _look_at_realm(context, name, provider)]
    return findings


async def _look_at_service(context: AdminContext) -> Finding:
    obstacle = await find_obstacle(context.redis)
    if obstacle:
        return Finding("trouble", "Redis", obstacle)
    return Finding("good", "Redis", f"{context.store_name} answers, takes writes and runs the service's scripts")


async def _look_at_durability(context: AdminContext, durability: Durability) -> Finding:
    """Check that changes are confirmed, in some shards, which in a cluster belong to many masters."""
    subject = f"TOKEN_SERVICE_DURABILITY={durability}"
    try:
        for shard in _LOOKED_AT_SHARDS:
            async with context.redis.durable(shard) as scripts:
                await scripts.leave_fence()
    except StoreUnavailable as problem:
        says = f"code exchanges, revocations and revokeAll are 503, because no write is confirmed: {problem}"
        return Finding("trouble", subject, says)
    return Finding("good", subject, "changes are confirmed")


async def _look_at_slots(context: AdminContext) -> AsyncIterator[Finding]:
    """Report slots that are moving key by key. Changes of their users fail until the slots have moved."""
    nodes = await context.redis.list_slots()
    leaving = {slot for node in nodes for slot in node.leaving}
    forgotten = {slot for node in nodes for slot in node.arriving} - leaving
    if leaving:
        says = (
            f"slots that are moving or half moved: {_join(leaving)}. Changes of their users wait, and are 503 after "
            "1.8 seconds. If no operator moves slots now, docs/operations/incidents.md says how to end it"
        )
        yield Finding("trouble", "Redis Cluster", says)
    if forgotten:
        says = (
            f"slots whose owner has forgotten that they are moving: {_join(forgotten)}. Keys of their users "
            "may lie on another master, where no logout reaches them. docs/operations/incidents.md says how to end it"
        )
        yield Finding("trouble", "Redis Cluster", says)


def _join(slots: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(slots)))


async def _look_at_clock(context: AdminContext) -> Finding:
    ahead_ms = await context.redis.read_clock_ms() - round(time.time() * 1000)
    if abs(ahead_ms) > _WRONG_CLOCK_MS:
        apart = format_span(abs(ahead_ms))
        return Finding("note", "clock", f"this machine's and Redis's are {apart} apart; only Redis's counts")
    return Finding("good", "clock", "this machine's and Redis's agree")


async def _look_at_keys(context: AdminContext, advance: Advance) -> AsyncIterator[Finding]:
    endless = await Statistics(context.redis).list_keys_without_ttl(advance)
    for kind, examples in sorted(endless.items()):
        yield Finding("trouble", "keys", f"without a time to live, which {kind} should have: {', '.join(examples)}")
    if not endless:
        yield Finding("good", "keys", "all that should expire will")
    registry = context.registry
    pending = [
        *await registry.list_pending_scans("pending_sweeps"),
        *await registry.list_pending_scans("pending_realm_sweeps"),
        *await registry.list_pending_users(),
    ]
    if pending:
        says = f"{len(pending)} are pending after an interrupted change; a worker or the next change ends them"
        yield Finding("warning", "ends of sessions", says)


def _look_at_secret_keys(settings: Settings) -> Iterator[Finding]:
    count = len(settings.secret_keys)
    if count > 1:
        life = format_span(settings.refresh_token_ttl_ms)
        says = f"{count} keys. The last one can be removed when the first one has been in use everywhere for {life}"
        yield Finding("note", "TOKEN_SERVICE_SECRET_KEY", f"{says} (the longest life of a refresh token)")


async def _look_at_realm(context: AdminContext, name: str, provider: IdentityProvider) -> AsyncIterator[Finding]:
    """Check a realm, and fetch the metadata of its identity provider, as the first login would."""
    subject = f"realm {name}"
    if name not in REALMS:
        yield Finding("warning", subject, f"no scope can name it: those that can be named are {', '.join(REALMS)}")
    for risk in list_identity_risks(provider.username_claim, trust_email=provider.trust_email):
        yield Finding("warning", subject, risk)
    sealed = provider.sealed_secret
    client_secret = context.keyring.decrypt(sealed, f"realm:{name}") if sealed else ""
    if client_secret is None:
        question = "is TOKEN_SERVICE_SECRET_KEY here that of the service? If it is, apply the seed file again"
        yield Finding("trouble", subject, f"none of our keys opens its client secret: {question}")
    http_client = HttpClient()
    conversation = ProviderClient(provider, client_secret, http_client, context.redis.read_clock_ms)
    try:
        server = await conversation.get_endpoints()
    except (InvalidProviderResponse, ProviderError) as problem:
        yield Finding("trouble", subject, f"the identity provider's metadata: {problem}")
    else:
        yield Finding("good", subject, f"browsers are sent to {server.authorization_endpoint}")
    finally:
        await http_client.close()
    redirect_uri = f"{context.settings.web_url}/authorization/callback"
    yield Finding(
        "note",
        subject,
        f"the redirect URI to register there for {provider.client_id}: {redirect_uri} (by this console's settings)",
    )


def _or_good(subject: str, says: str, findings: Iterable[Finding]) -> Iterable[Finding]:
    """Return the findings, or one of level `good` if there are none."""
    found = list(findings)
    return found or [Finding("good", subject, says)]
