"""The commands `user list`, `show`, `create`, `update`, `set-password`, `disable`, `enable`, `unlock` and `delete`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from service.admin.command import Work, command, console
from service.admin.commands.session import SESSION_COLUMNS, list_sessions
from service.admin.context import AdminContext
from service.admin.input import read_secret
from service.admin.output import CommandRefused, Output, WrongInput, list_facts, list_table
from service.admin.validation import validate_user
from service.protocol.scope import MAIN_REALM, ROLES
from service.protocol.user import User, identify_for_throttle
from service.registry.warnings import list_user_warnings


@console.group("user")
def users() -> None:
    """Manage people, and the devices that log in like them."""


_realm = click.option("--realm", default=MAIN_REALM, show_default=True, help="The realm that the user belongs to.")
_password_file = click.option("--password-file", metavar="FILE", help="Read the password from a file; - is stdin.")


def _username_and_realm(work: Work) -> Work:
    return click.argument("username", metavar="NAME")(_realm(work))


@command(users, "list")
@_realm
async def list_users(context: AdminContext, output: Output, realm: str) -> None:
    """List the users of a realm that have a record here.

    A user of an identity provider needs none.
    """
    await context.check_realm(realm)
    rows = [_describe(user) for user in await context.registry.list_users(realm)]
    output.table(rows, ("username", "name", "roles", "disabled"))


@command(users, "show")
@_username_and_realm
async def show_user(context: AdminContext, output: Output, username: str, realm: str) -> None:
    """Show one user and their sessions."""
    await context.check_realm(realm)
    identity = await context.identify_user(realm, username)
    user = await context.registry.find_user(identity)
    sessions = await list_sessions(context, identity)
    if user is None and not sessions:
        raise CommandRefused(f"there is no user {username} in realm {realm}")
    facts = {"has_record": user is not None} | _describe(user or User(realm=realm, username=username))
    facts |= {"subject": identity.subject}
    lines = [*list_facts(facts), *list_table(sessions, SESSION_COLUMNS)]
    output.show(facts | {"sessions": sessions}, lines)


@command(users, "create")
@_username_and_realm
@click.option("--role", "roles", multiple=True, type=click.Choice(ROLES), help="May be repeated.")
@click.option("--name", default="", help="What people call them.")
@_password_file
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
    identity = await context.identify_user(realm, username)
    password = _read_password(f"Password of {username}", password_file) if realm == MAIN_REALM else None
    listed_name = username if realm == MAIN_REALM else identity.username
    least = context.settings.min_password_characters
    entry = validate_user(realm, listed_name, password, tuple(roles), name, least)
    from service.registry.records import keep_or_hash, make_user  # imported here, like `hash_password` below

    password_hash = None if password is None else await asyncio.to_thread(keep_or_hash, password, None)
    user = make_user(entry, None, password_hash)
    await context.editor.create_user(user)
    output.done(f"Created the user {username} in realm {realm}.", **_describe(user))
    output.warn(list_user_warnings(user))


@command(users, "update")
@_username_and_realm
@click.option("--name", help="What people call them.")
@click.option("--add-role", "added", multiple=True, type=click.Choice(ROLES), help="May be repeated.")
@click.option("--remove-role", "removed", multiple=True, type=click.Choice(ROLES), help="May be repeated.")
async def update_user(
    context: AdminContext,
    output: Output,
    username: str,
    realm: str,
    name: str | None,
    added: Sequence[str],
    removed: Sequence[str],
) -> None:
    """Change what is named, and nothing else. If a role is removed, the user's sessions end."""
    old = await _get_user(context, realm, username)
    for role in removed:
        if role not in old.roles:
            raise WrongInput(f"--remove-role: the user {username} does not have the role {role}")
    roles = tuple(role for role in dict.fromkeys((*old.roles, *added)) if role not in removed)
    shown_name = old.name if name is None else name
    validate_user(realm, old.username, None, roles, shown_name, context.settings.min_password_characters)
    new = msgspec.structs.replace(old, roles=roles, name=shown_name)
    if new == old:
        raise CommandRefused("nothing was changed: no option names anything new (see --help)")
    if not set(old.roles) <= set(roles):
        lost = ", ".join(sorted(set(old.roles) - set(roles)))
        output.ask(f"Take {lost} from {username} of realm {realm}, and end all of their sessions?")
    await context.editor.update_user(old, new)
    output.done(f"The user {username} is changed.", **_describe(new))
    output.warn(list_user_warnings(new))


@command(users, "set-password")
@_username_and_realm
@_password_file
@click.option("--keep-sessions", is_flag=True, help="Do not end the user's sessions.")
async def set_password(
    context: AdminContext, output: Output, username: str, realm: str, password_file: str | None, keep_sessions: bool
) -> None:
    """Give a user a new password, and end all of their sessions.

    A password from a file or a pipe needs a confirmation, unless the sessions are kept.
    """
    if realm != MAIN_REALM:
        raise CommandRefused(f"the realm {realm} checks passwords itself")
    await _get_user(context, realm, username)
    password = _read_password(f"New password of {username}", password_file)
    validate_user(realm, username, password, (), "", context.settings.min_password_characters)
    if not keep_sessions and (password_file is not None or not sys.stdin.isatty()):
        output.ask(f"Replace the password of {username}, and end all of their sessions?")
    from service.crypto.password_hashing import hash_password  # imported here: other commands need no hash

    password_hash = await asyncio.to_thread(hash_password, password)
    old = await _get_user(context, realm, username)
    new = msgspec.structs.replace(old, password_hash=password_hash, upgraded_from=None)
    await context.editor.update_user(old, new, keep_sessions=keep_sessions)
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
    identity = await context.identify_known_user(realm, username)
    output.ask(f"Disable the user {username} of realm {realm}, and end all of their sessions?")
    await context.editor.disable_user(identity)
    sentence = f"The user {username} is disabled, and their sessions have ended."
    output.done(sentence, username=username, realm=realm, disabled=True)


@command(users, "enable")
@_username_and_realm
async def enable_user(context: AdminContext, output: Output, username: str, realm: str) -> None:
    """Let a disabled user log in again."""
    old = await _get_user(context, realm, username)
    await context.editor.update_user(old, msgspec.structs.replace(old, disabled=False))
    output.done(f"The user {username} may log in.", username=username, realm=realm, disabled=False)


@command(users, "unlock")
@_username_and_realm
async def unlock_user(context: AdminContext, output: Output, username: str, realm: str) -> None:
    """Forget the failed logins of a user name, so that a login is tried again.

    The limits of addresses stay. All keys are scanned for the counters of the name. In a realm with an identity
    provider, give the name as it was typed.
    """
    await context.identify_known_user(realm, username)
    with output.progress("Looking for the failed logins"):
        cleared = await context.attempts.clear_user(identify_for_throttle(realm, username))
    if cleared:
        context.record("user_unlocked", username=username, realm=realm, reason="console")
    counters = f"{cleared} counters of failed logins were deleted" if cleared else "there were no failed logins"
    output.done(f"Unlocked {username}: {counters}.", username=username, realm=realm, cleared=cleared)


@command(users, "delete")
@_username_and_realm
async def delete_user(context: AdminContext, output: Output, username: str, realm: str) -> None:
    """Delete a user and end all of their sessions.

    A user of an identity provider can still log in, and has the default roles of the realm again.
    """
    user = await _get_user(context, realm, username)
    output.ask(f"Delete the user {username} of realm {realm}, and end all of their sessions?")
    await context.editor.delete_user(user.identity)
    sentence = f"The user {username} is deleted, and their sessions have ended."
    output.done(sentence, username=username, realm=realm, deleted=True)


async def _get_user(context: AdminContext, realm: str, username: str) -> User:
    await context.check_realm(realm)
    user = await context.registry.find_user(await context.identify_user(realm, username))
    if user is None:
        raise CommandRefused(f"there is no user {username} with a record in realm {realm}")
    return user


def _read_password(prompt: str, file: str | None) -> str:
    return read_secret(prompt, file, what="password", twice=True)


def _describe(user: User) -> dict[str, Any]:
    """Return the fields of a user without the password hash."""
    shown = {field: getattr(user, field) for field in ("username", "realm", "name", "roles", "disabled")}
    return shown | {"has_password": user.password_hash is not None}
