"""The commands `token inspect` and `token revoke`. They find a token by its digest, since Redis stores no token."""

from __future__ import annotations

from typing import Any, Final

import click

from service.admin.command import command, console
from service.admin.context import AdminContext
from service.admin.input import read_secret
from service.admin.output import CommandRefused, Output, format_span, format_time, format_when
from service.protocol.authorization_code import AuthorizationCode, RedeemedCode
from service.protocol.bearer import AccessGrant
from service.protocol.client import Lifetimes
from service.protocol.token_form import RandomToken, parse_access_token, parse_authorization_code
from service.store.records import FamilyRecord, TombstoneRecord
from service.store.reports.token_inspection import EndedFamily, KnownFamily

_ENDINGS: Final[dict[str, str]] = {
    "replayed": "by a replay of a refresh token",
    "revoked": "by its client, which revoked the token",
    "code_replayed": "because its authorization code was exchanged a second time",
    "revoke_all": "by a revokeAll of its user",
    "too_old": "by a refresh that came later than its maximum age, which was shortened",
    "session_displaced": "by a new login of its user, who had as many sessions as one may have",
    "signed_out_there": "by its user, on the sessions page",
    "signed_out_everywhere": "by its user, who ended all sessions on the sessions page",
    "provider_logout": "by the identity provider of its user, where the login has ended",
    "console": "at the console",
}
"""Words for the reasons why a session ended. Other reasons are changes of its user, client or realm."""


@console.group("token")
def tokens() -> None:
    """Inspect or revoke a token. Without an argument it is read from the terminal without echo, or from stdin."""


def _read_token(token: str | None) -> str:
    return token if token not in (None, "-") else read_secret("Token", None, what="token")


@command(tokens, "inspect", examples=("token inspect", "token inspect --json < token.txt"))
@click.argument("token", required=False)
async def inspect_token(context: AdminContext, output: Output, token: str | None) -> None:
    """Explain a token.

    Print its user, its session and generation, whether it is live, and who ended it and why.
    """
    text = _read_token(token)
    access_token, code = parse_access_token(text), parse_authorization_code(text)
    refresh_token = context.keyring.parse_refresh_token(text)
    now_ms = await context.redis.read_clock_ms()
    if access_token is not None:
        facts = await _explain_access_token(context, access_token, now_ms)
    elif refresh_token is not None:
        family = await context.inspection.find_family(refresh_token.shard, refresh_token.family_digest, now_ms)
        max_age_ms = (await _get_lifetimes(context, family.record.client_id)).session_max_age_ms if family else None
        facts = _explain_refresh_token(family, refresh_token.generation, now_ms, max_age_ms)
    elif code is not None:
        facts = await _explain_code(context, code, now_ms)
    else:
        raise CommandRefused(
            "not a token of this service: it does not have the form of an access token or code, and no configured key "
            "signed it as a refresh token. Was it cut off when it was copied, or was its key removed?"
        )
    if "client_id" in facts:
        facts |= _describe_lifetimes(await _get_lifetimes(context, facts["client_id"]))
    output.facts(facts)


@command(tokens, "revoke", examples=("token revoke < token.txt",))
@click.argument("token", required=False)
async def revoke_token(context: AdminContext, output: Output, token: str | None) -> None:
    """Revoke an access token, or the session of a refresh token.

    A refresh token may be of any generation of its session. A terminal is asked first; a program that pipes the token
    in is not.
    """
    text = _read_token(token)
    access_token, refresh_token = parse_access_token(text), context.keyring.parse_refresh_token(text)
    if access_token is not None:
        grant = await context.access_tokens.find(access_token)
        if grant is not None:
            output.ask_at_terminal(f"Revoke this access token of {grant.username} with {grant.client_id}?")
        if grant is None or await context.access_tokens.revoke(access_token, client_id=grant.client_id) is None:
            raise CommandRefused("the access token is unknown, expired or revoked")
        ended, client_id, username = "The access token", grant.client_id, grant.username
        context.record("token_revoked_by_console", client_id=client_id, username=username, realm=grant.realm)
    elif refresh_token is not None:
        digest = refresh_token.family_digest
        family = await context.families.find(refresh_token.shard, digest)
        if family is not None:
            output.ask_at_terminal(f"End the session of {family.username} with {family.client_id}?")
        if family is None or not await context.end_session(refresh_token.shard, digest, family):
            raise CommandRefused("the session of this refresh token is unknown or has ended")
        ended, client_id, username = "The session", family.client_id, family.username
    else:
        raise CommandRefused("this is neither an access token nor a refresh token of this service")
    output.done(
        f"{ended} of {username} with {client_id} has ended.", revoked=True, client_id=client_id, username=username
    )


async def _explain_access_token(context: AdminContext, token: RandomToken, now_ms: int) -> dict[str, Any]:
    grant = await context.access_tokens.find(token)
    if grant is None:
        return _facts("access_token", "Not live: it expired, was revoked, ended with its session, or was never issued.")
    lives = format_span(max(0, grant.expires_at_ms - now_ms))
    family = await context.inspection.find_family(token.shard, grant.family_digest, now_ms)
    return {
        **_facts("access_token", f"Live for another {lives}.", live=True),
        **_name(grant),
        "scope": grant.scope,
        "issued": format_time(grant.issued_at_ms),
        "expires": format_time(grant.expires_at_ms),
        **_describe_session(family, grant.family_digest),
    }


async def _get_lifetimes(context: AdminContext, client_id: str) -> Lifetimes:
    """Return the lifetimes of the client, or those of the settings if it was deleted."""
    client = await context.registry.clients.find(client_id)
    return context.lifetimes.of(client) if client else context.lifetimes


def _describe_lifetimes(lifetimes: Lifetimes) -> dict[str, str]:
    max_age_ms = lifetimes.session_max_age_ms
    return {
        "access_token_ttl": format_span(lifetimes.access_token_ms),
        "refresh_token_ttl": format_span(lifetimes.refresh_token_ms),
        "session_max_age": format_span(max_age_ms) if max_age_ms else "none",
        "refresh_grace": format_span(lifetimes.refresh_grace_ms),
    }


def _explain_refresh_token(
    family: KnownFamily | EndedFamily | None, number: int, now_ms: int, max_age_ms: int | None
) -> dict[str, Any]:
    is_live = False
    if family is None:
        explanation = "Its session is not known: it expired, ended more than a day ago, or Redis lost it."
    elif isinstance(family, EndedFamily):
        explanation = _explain_ending(family.record, now_ms)
    elif family.state == "revoked" and family.marked_at_ms is not None:
        explanation = f"Its session ended with a revokeAll {format_when(family.marked_at_ms, now_ms)}."
    elif family.state != "live":
        explanation = f"Its session expired at {format_when(family.record.expires_ms, now_ms)}."
    elif max_age_ms and now_ms >= family.record.created_ms + max_age_ms:
        explanation = f"Its session is older than its maximum age of {format_span(max_age_ms)}: a refresh will end it."
    else:
        is_live = number >= family.record.head
        explanation = _explain_generation(number, family.record.head)
    facts = _facts("refresh_token", explanation, live=is_live) | {"generation": number}
    return facts | _describe_session(family, None)


def _explain_generation(number: int, head: int) -> str:
    if number < head:
        return f"Already used. In its grace period it still returns generation {head}; later its use ends the session."
    if number > head:
        return f"Newer than in Redis (generation {head}), as after a failover that lost writes: it will be accepted."
    return f"Live: generation {number} is the newest refresh token of its session."


def _explain_ending(record: TombstoneRecord, now_ms: int) -> str:
    """Return a sentence that says who ended the session, when and why."""
    how = _ENDINGS.get(record.reason, f"by a change ({record.reason.replace('_', ' ')})")
    if record.presented is not None:
        how = f"by a replay of generation {record.presented} while generation {record.head} was the newest"
    return f"Its session was ended {how}, at {format_when(record.ended_ms, now_ms)}."


async def _explain_code(context: AdminContext, token: RandomToken, now_ms: int) -> dict[str, Any]:
    code = await context.codes.find(token)
    if code is None:
        return _facts("authorization_code", "Not known: it expired, was revoked, or was exchanged long ago.")
    if isinstance(code, RedeemedCode):
        facts = _facts("authorization_code", "It was exchanged for a session.") | {"client_id": code.client_id}
        family = await context.inspection.find_family(token.shard, code.family_digest, now_ms)
        return facts | _describe_session(family, code.family_digest)
    state = await context.inspection.judge_code(token.shard, code, now_ms)
    words = {
        "live": f"Live: it can be exchanged for another {format_span(max(0, code.expires_ms - now_ms))}.",
        "revoked": "Revoked by a revokeAll of its user: it cannot be exchanged.",
        "over": "It expired before it was exchanged.",
    }
    return {
        **_facts("authorization_code", words[state], live=state == "live"),
        **_name(code),
        "scope": code.scope,
        "issued": format_time(code.created_ms),
        "expires": format_time(code.expires_ms),
    }


def _facts(kind: str, explanation: str, *, live: bool = False) -> dict[str, Any]:
    return {"token": kind, "live": live, "explanation": explanation}


def _name(record: AccessGrant | FamilyRecord | TombstoneRecord | AuthorizationCode) -> dict[str, str]:
    return {name: getattr(record, name) for name in ("client_id", "username", "subject")}


def _describe_session(family: KnownFamily | EndedFamily | None, digest: str | None) -> dict[str, Any]:
    if family is None:
        return {"session": digest} if digest else {}
    record = family.record
    facts: dict[str, Any] = {
        "session": family.digest,
        "session_live": isinstance(family, KnownFamily) and family.state == "live",
        "newest_generation": record.head,
        **_name(record),
        "session_scope": record.scope,
        "session_since": format_time(record.created_ms),
    }
    if isinstance(family, EndedFamily):
        ended = {"ended": format_time(family.record.ended_ms), "ended_by": family.record.reason}
        return facts | ended | {"replayed_generation": family.record.presented}
    return facts | {
        "grant_type": family.record.grant_type,
        "secret_used": family.record.secret_used,
        "last_used": format_time(family.record.used_ms),
        "session_expires": format_time(family.record.expires_ms),
        "live_access_tokens": family.access_tokens,
    }
