"""`doctor`: looks for what would hurt, in the store, the records and the settings."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterable
from typing import Final

from service.admin.checks import (
    Finding,
    Level,
    look_at_clients,
    look_at_servers,
    look_at_settings,
    look_at_store_address,
)
from service.admin.command import command, console
from service.admin.context import Desk
from service.admin.formatting import format_span
from service.admin.output import Advance, Output, Refused
from service.config.wiring import find_durability, find_store
from service.http_client.client import Outgoing
from service.protocol.provider import Organisation, list_identity_risks
from service.protocol.provider_responses import Declined, Misanswer
from service.protocol.scope import REALMS
from service.realms.provider.client import Conversation
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


@command(console, "doctor")
async def doctor(desk: Desk, output: Output) -> None:
    """Looks at store, records and settings for what would hurt. Exit status 1 where something must be mended."""
    with output.progress("Looking through all keys") as advance:
        findings = [finding async for finding in _look(desk, advance)]
    for finding in findings:
        mark, style = _MARKS[finding.level]
        if not output.as_json:
            output.line({}, f"{mark} {finding.subject}: {finding.says}", style)
    if output.as_json:
        output.table([finding._asdict() for finding in findings], {}, "")
    troubles = sum(finding.level == "trouble" for finding in findings)
    if troubles:
        raise Refused(f"to be mended: {troubles}")


async def _look(desk: Desk, advance: Advance) -> AsyncIterator[Finding]:
    """In the order in which they are to be mended."""
    yield await _look_at_service(desk)
    servers = await desk.connection.find_info("memory"), await desk.connection.find_info("persistence")
    if not all(servers):
        yield Finding("note", "Redis", "this user may not call INFO, so memory and persistence were not looked at")
    for finding in _or_good("Redis", "noeviction, append-only file, memory limit", look_at_servers(*servers)):
        yield finding
    durability = find_durability(desk.settings)
    if durability != "memory":
        yield await _look_at_durability(desk, durability)
    async for finding in _look_at_slots(desk):
        yield finding
    yield await _look_at_clock(desk)
    async for finding in _look_at_keys(desk, advance):
        yield finding
    for finding in _or_good("settings", "nothing stands out", look_at_settings(desk.settings, os.environ)):
        yield finding
    for finding in look_at_store_address(find_store(desk.settings)):
        yield finding
    clients = await desk.registry.find_all_clients()
    now_ms = await desk.connection.read_clock_ms()
    for finding in _or_good("clients", f"{len(clients)}, nothing stands out", look_at_clients(clients, now_ms)):
        yield finding
    for name, organisation in (await desk.registry.find_all_realms()).items():
        async for finding in _look_at_realm(desk, name, organisation):
            yield finding


async def _look_at_service(desk: Desk) -> Finding:
    obstacle = await find_obstacle(desk.connection)
    if obstacle:
        return Finding("trouble", "Redis", obstacle)
    return Finding("good", "Redis", "answers, takes writes and runs the service's scripts")


async def _look_at_durability(desk: Desk, durability: Durability) -> Finding:
    """Asks for a confirmation in some shards, which in a cluster are those of many masters."""
    subject = f"TOKEN_SERVICE_DURABILITY={durability}"
    try:
        for shard in _LOOKED_AT_SHARDS:
            async with desk.connection.durably(shard) as scripts:
                await scripts.leave_fence()
    except StoreUnavailable as trouble:
        says = f"code exchanges, revocations and revokeAll are 503, since nobody confirms them: {trouble}"
        return Finding("trouble", subject, says)
    return Finding("good", subject, "changes are confirmed")


async def _look_at_slots(desk: Desk) -> AsyncIterator[Finding]:
    """Report slots that are moving key by key. Nothing of their users can be changed until they have moved."""
    nodes = await desk.connection.list_slots()
    leaving = {slot for node in nodes for slot in node.leaving}
    forgotten = {slot for node in nodes for slot in node.arriving} - leaving
    if leaving:
        says = (
            f"slots that are moving or half moved: {_join(leaving)}. Changes of their users wait, and are 503 after "
            "1.8 seconds. If nobody moves slots now, docs/operations.md says how to end it"
        )
        yield Finding("trouble", "Redis Cluster", says)
    if forgotten:
        says = (
            f"slots whose owner has forgotten that they are moving: {_join(forgotten)}. Keys of their users "
            "may lie on another master, where no logout reaches them. docs/operations.md says how to end it"
        )
        yield Finding("trouble", "Redis Cluster", says)


def _join(slots: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(slots)))


async def _look_at_clock(desk: Desk) -> Finding:
    ahead_ms = await desk.connection.read_clock_ms() - round(time.time() * 1000)
    if abs(ahead_ms) > _WRONG_CLOCK_MS:
        apart = format_span(abs(ahead_ms))
        return Finding("note", "clock", f"this machine's and Redis's are {apart} apart; only Redis's counts")
    return Finding("good", "clock", "this machine's and Redis's agree")


async def _look_at_keys(desk: Desk, advance: Advance) -> AsyncIterator[Finding]:
    endless = await Statistics(desk.connection).find_endless(advance)
    for kind, examples in sorted(endless.items()):
        yield Finding("trouble", "keys", f"without a time to live, which {kind} should have: {', '.join(examples)}")
    if not endless:
        yield Finding("good", "keys", "all that should expire will")
    registry = desk.registry
    owed = [
        *await registry.find_owed_sweeps(),
        *await registry.find_owed_realm_sweeps(),
        *await registry.find_owed_revocations(),
    ]
    if owed:
        says = f"{len(owed)} are owed by a change that was cut short; the next change or start of the service ends them"
        yield Finding("warning", "ends of sessions", says)


async def _look_at_realm(desk: Desk, name: str, organisation: Organisation) -> AsyncIterator[Finding]:
    """Asks the organisation for its metadata, as the first login would."""
    subject = f"realm {name}"
    if name not in REALMS:
        yield Finding("warning", subject, f"no scope can name it: those that can be named are {', '.join(REALMS)}")
    for risk in list_identity_risks(organisation.username_claim, trust_email=organisation.trust_email):
        yield Finding("warning", subject, risk)
    sealed = organisation.sealed_secret
    client_secret = desk.keyring.decrypt(sealed, f"realm:{name}") if sealed else ""
    if client_secret is None:
        question = "is TOKEN_SERVICE_SECRET_KEY here that of the service? If it is, apply the seed file again"
        yield Finding("trouble", subject, f"none of our keys opens its client secret: {question}")
    outgoing = Outgoing()
    conversation = Conversation(organisation, client_secret, outgoing, desk.connection.read_clock_ms)
    try:
        server = await conversation.find_server()
    except (Misanswer, Declined) as trouble:
        yield Finding("trouble", subject, f"the organisation's metadata: {trouble}")
    else:
        yield Finding("good", subject, f"browsers are sent to {server.authorization_endpoint}")
    finally:
        await outgoing.close()
    redirect_uri = f"{desk.settings.web_url}/authorization/callback"
    yield Finding("note", subject, f"the redirect URI to register there for {organisation.client_id}: {redirect_uri}")


def _or_good(subject: str, says: str, findings: Iterable[Finding]) -> Iterable[Finding]:
    found = list(findings)
    return found or [Finding("good", subject, says)]
