"""The commands `user list`, `show`, `create`, `set-password`, `disable`, `enable` and `delete`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import click

from service.admin.command import Work, command, console, read_secret
from service.admin.context import AdminContext
from service.admin.formatting import format_time
from service.admin.output import CommandRefused, Output, WrongInput
from service.admin.validation import validate_user
from service.crypto.password_hashing import hash_password
from service.protocol.scope import MAIN_REALM, ROLES
from service.protocol.user import User
from service.registry.records import make_user

MAX_SESSIONS = 500


@console.group("user")
def users() -> None:
    """Manage people, and the devices that log in like them."""


def _realm() -> Callable[[Work], Work]:
    return click.option("--realm", default=MAIN_REALM, show_default=True, help="The realm that the user belongs to.")


def _username_and_realm(work: Work) -> Work:
    return click.argument("username", metavar="NAME")(_realm()(work))


def _password_file() -> Callable[[Work], Work]:
    return click.option("--password-file", metavar="FILE", help="Read the password from a file; - is stdin.")


@command(users, "list")
@_realm()
async def list_users(context: AdminContext, output: Output, realm: str) -> None:
    """List the users of a realm.

    A user of an identity provider is listed only if there is a record that says more than the provider.
    """
    await context.check_realm(realm)
    rows = [_describe(user) for user in await context.registry.list_users(realm)]
    columns = {"username": "USER", "name": "NAME", "roles": "ROLES", "disabled": "DISABLED"}
    output.table(rows, columns, f"No user of realm {realm} is listed.")


@command(users, "show")
@_username_and_realm
async def show_user(context: AdminContext, output: Output, username: str, realm: str) -> None:
    """Show one user and their sessions."""
    await context.check_realm(realm)
    identity = await context.identify_user(realm, username)
    user = await context.registry.find_user(identity)
    families, is_cut = await context.families.list_of_user(identity, MAX_SESSIONS)
    if user is None and not families:
        raise CommandRefused(f"there is no user {username} in realm {realm}")
    described = {"listed": user is not None} | _describe(user or User(realm=realm, username=username))
    sessions = [
        {
            "family": digest,
            "client_id": family.client_id,
            "scope": family.scope,
            "since": format_time(family.created_ms),
            "last_used": format_time(family.used_ms),
        }
        for digest, family in families
    ]
    described |= {"subject": identity.subject, "sessions_cut_off": is_cut}
    if output.as_json:
        output.facts(described | {"sessions": sessions})
        return
    output.facts(described)
    columns = {"client_id": "SESSION WITH", "scope": "SCOPE", "since": "SINCE", "last_used": "LAST USED"}
    output.table(sessions, columns, "No sessions.")


@command(users, "create")
@_username_and_realm
@click.option("--role", "roles", multiple=True, type=click.Choice(ROLES), help="May be repeated.")
@click.option("--name", default="", help="What people call them.")
@_password_file()
async def create_user(
    context: AdminContext,
    output: Output,
    username: str,
    realm: str,
    roles: Sequence[str],
    name: str,
    password_file: str | None,
) -> None:
    """Create the record of a user.

    The password is read from the terminal, or from a file. A user of an identity provider has no password here.
    """
    await context.check_realm(realm)
    if realm != MAIN_REALM and password_file is not None:
        raise WrongInput(f"--password-file: the realm {realm} checks passwords itself")
    least = context.settings.min_password_characters
    validate_user(realm, username, None, tuple(roles), name, least)
    identity = await context.identify_user(realm, username)
    if await context.registry.find_user(identity) is not None:
        raise CommandRefused(f"there is a user {username} in realm {realm} already")
    password = read_secret(f"Password of {username}", password_file, twice=True) if realm == MAIN_REALM else None
    listed_name = username if realm == MAIN_REALM else identity.username
    entry = validate_user(realm, listed_name, password, tuple(roles), name, least)
    user = await asyncio.to_thread(make_user, entry, None)
    await context.editor.create_user(user)
    output.done(f"The user {username} is listed in realm {realm}.", **_describe(user))


@command(users, "set-password")
@_username_and_realm
@_password_file()
@click.option("--keep-sessions", is_flag=True, help="Do not end the user's sessions.")
async def set_password(
    context: AdminContext, output: Output, username: str, realm: str, password_file: str | None, keep_sessions: bool
) -> None:
    """Give a user a new password, and end all of their sessions."""
    identity = await context.identify_user(realm, username)
    if realm != MAIN_REALM:
        raise CommandRefused(f"the realm {realm} checks passwords itself")
    if await context.registry.find_user(identity) is None:
        raise CommandRefused(f"there is no user {username} in realm {realm}")
    password = read_secret(f"New password of {username}", password_file, twice=True)
    validate_user(realm, username, password, (), "", context.settings.min_password_characters)
    password_hash = await asyncio.to_thread(hash_password, password)
    await context.editor.set_password(identity, password_hash, keep_sessions=keep_sessions)
    ended = "go on" if keep_sessions else "have ended"
    output.done(
        f"The user {username} has a new password; their sessions {ended}.",
        username=username,
        realm=realm,
        sessions_ended=not keep_sessions,
    )


@command(users, "disable")
@_username_and_realm
async def disable_user(context: AdminContext, output: Output, username: str, realm: str) -> None:
    """Prevent a user from logging in, and end all of their sessions."""
    await context.editor.disable_user(await context.identify_user(realm, username))
    sentence = f"The user {username} is disabled, and their sessions have ended."
    output.done(sentence, username=username, realm=realm, disabled=True)


@command(users, "enable")
@_username_and_realm
async def enable_user(context: AdminContext, output: Output, username: str, realm: str) -> None:
    """Let a disabled user log in again."""
    await context.editor.enable_user(await context.identify_user(realm, username))
    output.done(f"The user {username} may log in.", username=username, realm=realm, disabled=False)


@command(users, "delete")
@_username_and_realm
async def delete_user(context: AdminContext, output: Output, username: str, realm: str) -> None:
    """Delete a user and end all of their sessions.

    A user of an identity provider can still log in, and has the default roles of the realm again.
    """
    identity = await context.identify_user(realm, username)
    if await context.registry.find_user(identity) is not None:
        output.ask(f"Delete the user {username} of realm {realm}, and end all of their sessions?")
    await context.editor.delete_user(identity)
    sentence = f"The user {username} is deleted, and their sessions have ended."
    output.done(sentence, username=username, realm=realm, deleted=True)


def _describe(user: User) -> dict[str, Any]:
    """Return the fields of a user without the password hash."""
    shown = {field: getattr(user, field) for field in ("username", "realm", "name", "roles", "disabled")}
    return shown | {"has_password": user.password_hash is not None}
