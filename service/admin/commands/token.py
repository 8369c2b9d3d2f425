"""The commands `token inspect` and `token revoke`. They find a token by its digest, since Redis stores no token."""

from __future__ import annotations

from typing import Any

import click

from service.admin.command import command, console
from service.admin.context import AdminContext
from service.admin.formatting import format_time
from service.admin.input import read_secret
from service.admin.output import CommandRefused, Output
from service.protocol.bearer import AccessGrant
from service.protocol.token_form import parse_access_token, parse_authorization_code
from service.store.records import CodeRecord, FamilyRecord, TombstoneRecord
from service.store.reports.token_inspection import (
    EndedFamily,
    ExchangedCode,
    InspectedAccessToken,
    KnownFamily,
    WaitingCode,
)


@console.group("token")
def tokens() -> None:
    """Inspect or revoke a token. Without an argument the token is read from the terminal, unseen, or from stdin."""


def _read_token(token: str | None) -> str:
    return token if token not in (None, "-") else read_secret("Token", None, what="token")


@command(tokens, "inspect")
@click.argument("token", required=False)
async def inspect_token(context: AdminContext, output: Output, token: str | None) -> None:
    """Print the state of a token, its user and its session.

    An ended session has the reason of its end as `ended_by`.
    """
    text = _read_token(token)
    access_token, code = parse_access_token(text), parse_authorization_code(text)
    refresh_token = context.keyring.parse_refresh_token(text)
    if access_token is not None:
        facts = _describe_access_token(await context.inspection.inspect_access_token(access_token))
    elif refresh_token is not None:
        inspected = await context.inspection.inspect_refresh_token(refresh_token)
        facts = _describe_refresh_token(inspected.family, refresh_token.generation)
    elif code is not None:
        facts = _describe_code((await context.inspection.inspect_code(code)).code)
    else:
        raise CommandRefused(
            "not a token of this service: it was cut off, or no configured key signed it as a refresh token"
        )
    output.facts(facts)


@command(tokens, "revoke")
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


def _describe_access_token(found: InspectedAccessToken) -> dict[str, Any]:
    grant = found.grant
    if grant is None:
        return {"token": "access_token", "state": "unknown"}
    return {
        "token": "access_token",
        "state": "live",
        **_name(grant),
        "issued": format_time(grant.issued_at_ms),
        "expires": format_time(grant.expires_at_ms),
        **_describe_family(found.family),
    }


def _describe_refresh_token(family: KnownFamily | EndedFamily | None, generation: int) -> dict[str, Any]:
    facts = {"token": "refresh_token", "generation": generation}
    if family is None:
        return facts | {"state": "unknown"}
    is_used = not isinstance(family, EndedFamily) and family.state == "live" and generation < family.record.head
    described = _describe_family(family)
    return facts | {"state": "used" if is_used else described["family_state"]} | _name(family.record) | described


def _describe_code(code: WaitingCode | ExchangedCode | None) -> dict[str, Any]:
    if code is None:
        return {"token": "authorization_code", "state": "unknown"}
    if isinstance(code, ExchangedCode):
        exchanged = {"token": "authorization_code", "state": "exchanged", "client_id": code.client_id}
        return exchanged | {"family": code.family_digest} | _describe_family(code.family)
    times = {"issued": format_time(code.record.created_ms), "expires": format_time(code.record.expires_ms)}
    return {"token": "authorization_code", "state": code.state} | _name(code.record) | times


def _name(record: AccessGrant | FamilyRecord | TombstoneRecord | CodeRecord) -> dict[str, str]:
    return {name: getattr(record, name) for name in ("client_id", "username", "subject", "scope")}


def _describe_family(family: KnownFamily | EndedFamily | None) -> dict[str, Any]:
    if family is None:
        return {}
    begun: dict[str, Any] = {"family": family.digest, "family_since": format_time(family.record.created_ms)}
    begun |= {"head_generation": family.record.head}
    if isinstance(family, EndedFamily):
        record = family.record
        ended = {"family_state": "ended", "ended": format_time(record.ended_ms), "ended_by": record.reason}
        return begun | ended | {"replayed_generation": record.presented}
    return begun | {
        "family_state": family.state,
        "family_expires": format_time(family.record.expires_ms),
        "last_used": format_time(family.record.used_ms),
        "live_access_tokens": family.access_tokens,
    }
