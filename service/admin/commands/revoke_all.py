"""The command `revoke-all`, which ends many sessions at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import click

from service.admin.command import asking_command, console, parsed_by
from service.admin.context import AdminContext
from service.admin.input import parse_time_ms
from service.admin.output import Output, WrongInput, format_time
from service.observability.audit import name_user
from service.protocol.scope import MAIN_REALM
from service.redis_client.deadline import StoreUnavailable, UnreadableRecord
from service.store.sessions.families import UserEnding

MAX_COUNTED: Final = 10_000
"""The number of sessions of one user that are counted before they end."""

_THE_REST: Final = "So are their access tokens, and all codes and browser sessions"


@asking_command(
    console,
    "revoke-all",
    examples=(
        "revoke-all --user carol@example.com",
        "revoke-all --client shop",
        "revoke-all --issued-before 2026-11-21T08:30:00Z",
    ),
)
@click.option("--user", "username", metavar="NAME", help="Revoke all sessions of this user.")
@click.option("--realm", help=f"The realm of --user.  [default: {MAIN_REALM}]")
@click.option("--client", "client_id", metavar="ID", help="Revoke all sessions of this client.")
@click.option(
    "--issued-before",
    "before_ms",
    type=parsed_by(parse_time_ms),
    metavar="TIME",
    help="Revoke all sessions that began before this time (ISO 8601). Use this after restoring a backup.",
)
@click.option("--everything", is_flag=True, help="Revoke all sessions. Use this if the secret key was stolen.")
@click.option("--from-shard", metavar="SHARD", help="Continue an interrupted revocation of all users at this shard.")
async def revoke_all(
    context: AdminContext,
    output: Output,
    username: str | None,
    realm: str | None,
    client_id: str | None,
    before_ms: int | None,
    everything: bool,
    from_shard: str | None,
) -> None:
    """Revoke sessions and their access tokens. Give one of --user, --client, --issued-before or --everything."""
    given = [username is not None, client_id is not None, before_ms is not None, everything]
    if sum(given) != 1:
        raise WrongInput("give exactly one of --user, --client, --issued-before or --everything")
    if realm is not None and username is None:
        raise WrongInput("--realm requires --user")
    if from_shard is not None and not (before_ms is not None or everything):
        raise WrongInput("--from-shard requires --issued-before or --everything")
    if username is not None:
        await _revoke_user(context, output, username, realm or MAIN_REALM)
    elif client_id is not None:
        await _revoke_client(context, output, client_id)
    else:
        await _revoke_everybody(context, output, before_ms, from_shard or "")


async def _revoke_user(context: AdminContext, output: Output, username: str, realm: str) -> None:
    """End all sessions of a user. In a realm with an identity provider, users without a record may have sessions."""
    user = await context.get_known_user(realm, username)
    identity = user.identity
    output.ask(f"Revoke all sessions of {username} in realm {realm}?")
    ended, is_cut = 0, True
    with suppress(UnreadableRecord):  # all else of the user must end nevertheless
        families, is_cut = await context.families.list_of_user(identity, MAX_COUNTED)
        ended = len(families)
    await context.revocations.revoke_all(identity.shard, identity.digest, reason="cli")
    context.record("revoke_all_by_cli", **name_user(user), reason="user", count=ended)
    number = f"{ended} or more" if is_cut else ended
    told = f"All sessions of {username} are revoked: {number}. {_THE_REST}."
    output.done(told, username=username, realm=realm, revoked=ended)


async def _revoke_client(context: AdminContext, output: Output, client_id: str) -> None:
    """End all sessions with a client. A deleted client is refused; its sessions ended when it was deleted."""
    await context.editor.get_client(client_id)
    output.ask(f"Revoke all sessions of {client_id}?")
    with output.progress("Scanning all sessions"):
        ended = await context.session_scan.end_sessions([client_id], lambda _: "cli")
    context.record("revoke_all_by_cli", client_id=client_id, reason="client", count=ended)
    rest = "So are their access tokens and codes. Browser sessions continue"
    told = f"All sessions of {client_id} are revoked: {ended}. {rest}."
    output.done(told, client_id=client_id, revoked=ended)


async def _revoke_everybody(context: AdminContext, output: Output, before_ms: int | None, from_shard: str) -> None:
    if before_ms is not None and before_ms > await context.redis.read_clock_ms():
        raise WrongInput("--issued-before: the time must be in the past (--everything revokes all current sessions)")
    issued_before = "" if before_ms is None else format_time(before_ms)
    before = issued_before and f" that began before {issued_before}"
    output.ask(f"Revoke all sessions{before}, of all users?")
    users, total, group, left = 0, 0, "", list[UserEnding]()
    until_ms = 0 if before_ms is None else before_ms - 1

    def count(done: int) -> None:
        nonlocal users
        users += done
        advance(users, total)

    async def end_sessions() -> None:
        nonlocal total, group
        groups = [each for each in await context.session_scan.list_shard_groups() if each >= from_shard[: len(each)]]
        listed = 0
        for done, group in enumerate(groups, 1):
            found = await context.session_scan.list_users(group, with_records=before_ms is None)
            listed += len(found)
            total = listed * len(groups) // done
            endings = (UserEnding(*user, "cli") for user in found)
            left.extend(await context.revocations.revoke_all_of(endings, until_ms=until_ms, after_users=count))
        await context.revocations.revoke_all_left(left, until_ms=until_ms)
        count(len(left))

    # Without the lock, two such commands at once could each skip users that the other one is processing.
    async with context.registry.make_lock_for("everybody", context.on_wait) as lock:
        try:
            with output.progress("Revoking the sessions of users") as advance:
                await lock.renew_during(end_sessions())
        except (asyncio.CancelledError, StoreUnavailable):
            where = (shard := min([group, *(user.shard for user in left)])) and f" with --from-shard {shard}"
            output.note(f"The sessions of {users} users are revoked. Repeat the command{where} to revoke the rest.")
            raise
        finally:
            reason = "issued_before" if issued_before else "everything"
            context.record("revoke_all_by_cli", reason=reason, issued_before=issued_before, count=users)
    told = f"All sessions{before} of all users are revoked. {_THE_REST}{before}. Affected users: {users}."
    output.done(told, users=users)
