"""The commands `session list` and `session end`. A session is named by its id, as in security events (`session`)."""

from __future__ import annotations

from typing import Any, Final

import click

from service.admin.command import asking_command, command, console
from service.admin.context import AdminContext
from service.admin.output import CommandRefused, Output, WrongInput, format_time
from service.protocol.scope import MAIN_REALM, parse_realm
from service.protocol.user import UserIdentity

ID_CHARACTERS: Final = 22
MAX_SESSIONS: Final = 500
SESSION_COLUMNS: Final = ("id", "client_id", "scope", "started", "last_used")


@console.group("session")
def sessions() -> None:
    """List or revoke sessions. A session is a login of a user with a client."""


async def list_sessions(context: AdminContext, identity: UserIdentity) -> tuple[list[dict[str, Any]], bool]:
    """Return the user's live sessions, the last used first, and True if there may be more than MAX_SESSIONS."""
    families, is_cut = await context.families.list_of_user(identity, MAX_SESSIONS)
    rows = [
        {
            "id": digest,
            "client_id": family.client_id,
            "scope": family.scope,
            "started": format_time(family.created_ms),
            "last_used": format_time(family.used_ms),
            "expires": format_time(family.expires_ms),
        }
        for digest, family in families
    ]
    return rows, is_cut


@command(sessions, "list", examples=("session list --user carol@example.com",))
@click.option("--user", "username", required=True, metavar="NAME", help="The user whose sessions are listed.")
@click.option("--realm", default=MAIN_REALM, show_default=True, help="The realm of the user.")
async def list_user_sessions(context: AdminContext, output: Output, username: str, realm: str) -> None:
    """List the sessions of a user, the last used first."""
    rows, is_cut = await list_sessions(context, (await context.get_known_user(realm, username)).identity)
    output.table(rows, SESSION_COLUMNS, f"User {username} has no sessions.")
    if is_cut:
        output.note(f"There may be more; only {MAX_SESSIONS} are shown.")


@asking_command(
    sessions,
    "end",
    examples=("session end 0E64JM8HcFENZvoGuUu_1g",),
    # An ID may begin with "-" or "-h".
    context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]},
)
@click.argument("session_id", metavar="ID")
async def revoke_session(context: AdminContext, output: Output, session_id: str) -> None:
    """Revoke one session and its access tokens.

    The ID is shown by `session list` and `user show`, and is the field `session` of security events.
    """
    if len(session_id) != ID_CHARACTERS:
        raise WrongInput(f"{session_id}: expected the {ID_CHARACTERS}-character ID that `session list` shows")
    found = await context.families.find_shard(session_id)
    if found is None:
        raise CommandRefused(f"session {session_id} not found: it has ended or never existed")
    shard, family = found
    output.ask(f"Revoke session {session_id} of {family.username} with {family.client_id}?")
    if not await context.end_session(shard, session_id, family):
        raise CommandRefused(f"session {session_id} has already ended")
    output.done(
        f"Session {session_id} of {family.username} with {family.client_id} is revoked.",
        id=session_id,
        client_id=family.client_id,
        username=family.username,
        realm=parse_realm(family.scope),
        revoked=True,
    )
