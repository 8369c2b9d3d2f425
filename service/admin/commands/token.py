"""The commands `token inspect` and `token revoke`. They find a token by its digest, since Redis stores no token."""

from __future__ import annotations

from typing import Any

import click

from service.admin.command import asking_command, command, console
from service.admin.context import AdminContext
from service.admin.input import read_secret
from service.admin.output import CommandRefused, Output, format_span, format_time, format_when
from service.crypto.keyring import RefreshToken
from service.observability.audit import name_user
from service.protocol.bearer import AccessGrant
from service.protocol.token_form import RandomToken, parse_access_token
from service.store.records import FamilyRecord, TombstoneRecord
from service.store.reports.token_inspection import KnownFamily, find_family


@console.group("token")
def tokens() -> None:
    """Inspect or revoke a token. Without an argument it is read from the terminal without echo, or from stdin."""


def _read_token(context: AdminContext, token: str | None) -> tuple[RandomToken | None, RefreshToken | None]:
    """Return the token as an access token and as a refresh token, of which it is one at most."""
    text = token if token not in (None, "-") else read_secret("Token", None, what="token")
    return parse_access_token(text), context.keyring.parse_refresh_token(text)


@command(tokens, "inspect", examples=("token inspect", "token inspect --json < token.txt"))
@click.argument("token", required=False)
async def inspect_token(context: AdminContext, output: Output, token: str | None) -> None:
    """Explain a token.

    Print its user, its session and generation, whether it is valid, and why its session ended.
    """
    access_token, refresh_token = _read_token(context, token)
    now_ms = await context.redis.read_clock_ms()
    if access_token is not None:
        facts = await _explain_access_token(context, access_token, now_ms)
    elif refresh_token is not None:
        family = await find_family(context.redis, refresh_token.shard, refresh_token.family_digest, now_ms)
        client = await context.registry.clients.find(_get_record(family).client_id) if family else None
        lifetimes = context.lifetimes.of(client) if client else context.lifetimes
        facts = _explain_refresh_token(family, refresh_token, now_ms, lifetimes.session_max_age_ms)
    else:
        raise CommandRefused(
            "neither an access token of this service nor a refresh token of a configured key. Check that it was copied "
            "completely, and that its key is still configured"
        )
    output.facts(facts)


@asking_command(tokens, "revoke", examples=("token revoke < token.txt",))
@click.argument("token", required=False)
async def revoke_token(context: AdminContext, output: Output, token: str | None) -> None:
    """Revoke an access token, or the session of a refresh token.

    A refresh token may be of any generation of its session. The command asks for confirmation only at a terminal.
    """
    access_token, refresh_token = _read_token(context, token)
    if access_token is not None:
        grant = await context.access_tokens.find(access_token)
        if grant is not None:
            output.ask_at_terminal(f"Revoke this access token of {grant.username} with {grant.client_id}?")
        if grant is None or await context.access_tokens.revoke(access_token, client_id=grant.client_id) is None:
            raise CommandRefused("the access token is unknown, expired or revoked")
        ended, client_id, username = "The access token", grant.client_id, grant.username
        context.record("token_revoked_by_cli", client_id=client_id, **name_user(grant))
    elif refresh_token is not None:
        digest = refresh_token.family_digest
        family = await context.families.find(refresh_token.shard, digest)
        if family is not None:
            output.ask_at_terminal(f"Revoke the session of {family.username} with {family.client_id}?")
        if family is None or not await context.end_session(refresh_token.shard, digest, family):
            raise CommandRefused("the session of this refresh token is unknown or has ended")
        ended, client_id, username = "The session", family.client_id, family.username
    else:
        raise CommandRefused("this is neither an access token nor a refresh token of this service")
    output.done(
        f"{ended} of {username} with {client_id} is revoked.", revoked=True, client_id=client_id, username=username
    )


async def _explain_access_token(context: AdminContext, token: RandomToken, now_ms: int) -> dict[str, Any]:
    grant = await context.access_tokens.find(token)
    if grant is None:
        return _facts("access_token", "Not valid: it expired, was revoked (or its session was), or was never issued.")
    lives = format_span(max(0, grant.expires_at_ms - now_ms))
    family = await find_family(context.redis, token.shard, grant.family_digest, now_ms)
    return {
        **_facts("access_token", f"Valid for another {lives}.", active=True),
        **_name(grant),
        "scope": grant.scope,
        "issued": format_time(grant.issued_at_ms),
        "expires": format_time(grant.expires_at_ms),
        **(_describe_session(family, grant.family_digest) if family else {"session": grant.family_digest}),
    }


def _explain_refresh_token(
    family: KnownFamily | TombstoneRecord | None, token: RefreshToken, now_ms: int, max_age_ms: int | None
) -> dict[str, Any]:
    is_live, number = False, token.generation
    if family is None:
        explanation = "Unknown session: it expired, ended more than a day ago, or was lost by Redis."
    elif isinstance(family, TombstoneRecord):
        explanation = _explain_ending(family, now_ms)
    elif family.state == "revoked":
        explanation = f"Its session was revoked (revoke_all) at {format_when(family.marked_at_ms, now_ms)}."
    elif family.state != "live":
        explanation = f"Its session expired at {format_when(family.record.expires_ms, now_ms)}."
    elif max_age_ms and now_ms >= family.record.created_ms + max_age_ms:
        explanation = f"Its session is older than the maximum age of {format_span(max_age_ms)}: a refresh revokes it."
    else:
        is_live = number >= family.record.head
        explanation = _explain_generation(number, family.record.head)
    facts = _facts("refresh_token", explanation, active=is_live) | {"generation": number}
    return facts | (_describe_session(family, token.family_digest) if family else {})


def _explain_generation(number: int, head: int) -> str:
    if number < head:
        return f"Used. In its grace period, it returns generation {head}; after that, using it revokes the session."
    if number > head:
        return f"Newer than the record in Redis (generation {head}), because Redis lost writes. It will be accepted."
    return f"Valid: generation {number} is the newest refresh token of its session."


def _explain_ending(record: TombstoneRecord, now_ms: int) -> str:
    """Return a sentence that says why the session ended, and when."""
    why = record.reason
    if record.presented is not None:
        why = f"generation {record.presented} was reused while generation {record.head} was the newest"
    return f"Its session was revoked ({why}) at {format_when(record.ended_ms, now_ms)}."


def _facts(kind: str, explanation: str, *, active: bool = False) -> dict[str, Any]:
    return {"token": kind, "active": active, "explanation": explanation}


def _name(record: AccessGrant | FamilyRecord | TombstoneRecord) -> dict[str, str]:
    return {name: getattr(record, name) for name in ("client_id", "username", "subject")}


def _get_record(family: KnownFamily | TombstoneRecord) -> FamilyRecord | TombstoneRecord:
    return family if isinstance(family, TombstoneRecord) else family.record


def _describe_session(family: KnownFamily | TombstoneRecord, digest: str) -> dict[str, Any]:
    record = _get_record(family)
    facts: dict[str, Any] = {
        "session": digest,
        "session_active": isinstance(family, KnownFamily) and family.state == "live",
        "newest_generation": record.head,
        **_name(record),
        "session_scope": record.scope,
        "session_started": format_time(record.created_ms),
    }
    if isinstance(family, TombstoneRecord):
        ended = {"ended": format_time(family.ended_ms), "end_reason": family.reason}
        return facts | ended | {"reused_generation": family.presented}
    return facts | {
        "grant_type": family.record.grant_type,
        "secret_used": family.record.secret_used,
        "last_used": format_time(family.record.used_ms),
        "session_expires": format_time(family.record.expires_ms),
        "active_access_tokens": family.access_tokens,
    }
