"""The commands `user list`, `show`, `create`, `update`, `set-password`, `import`, `disable`, `enable`, `unlock` and
`delete`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from service.admin.command import Work, asking_command, command, console
from service.admin.commands.session import SESSION_COLUMNS, list_sessions
from service.admin.context import AdminContext
from service.admin.input import read_secret
from service.admin.options import change_record, list_option, part_options, validate_user
from service.admin.output import CommandRefused, Output, WrongInput, list_facts, list_table
from service.observability.audit import name_user
from service.protocol.scope import MAIN_REALM, ROLES
from service.protocol.user import User, identify_for_throttle
from service.registry.editor import replacing
from service.registry.warnings import list_user_warnings
from service.store.attempts import FailedLogins
from service.store.registry.user_ids import make_user_id


@console.group("user")
def users() -> None:
    """Manage users, and devices that log in like users."""


_realm = click.option("--realm", default=MAIN_REALM, show_default=True, help="The realm that the user belongs to.")
_NAME = click.Option(["--name"], help="The display name.")
_ID = click.Option(["--id"], help="The user's id in your own systems. By default, a random id is generated.")
_password_file = click.option("--password-file", metavar="FILE", help="Read the password from a file (- for stdin).")


def _username_and_realm(work: Work) -> Work:
    return click.argument("username", metavar="NAME")(_realm(work))


@command(users, "list", examples=("user list", "user list --realm cep --json"))
@_realm
async def list_users(context: AdminContext, output: Output, realm: str) -> None:
    """List the users of a realm that have a record here.

    Users of an identity provider need no record.
    """
    await context.check_realm(realm)
    rows = [_describe(user) for user in await context.registry.users.list_of(realm)]
    output.table(rows, ("username", "id", "name", "roles", "disabled"), f"No users of realm {realm} have a record.")


@command(users, "show", examples=("user show carol@example.com",))
@_username_and_realm
async def show_user(context: AdminContext, output: Output, username: str, realm: str) -> None:
    """Show one user, their failed logins and their sessions.

    Failed logins are those that still count. Past a limit, logins are rejected unchecked until the next try.
    """
    await context.check_realm(realm)
    identity = await context.identify_user(realm, username)
    user = await context.registry.users.find(identity)
    sessions, is_cut = await list_sessions(context, identity)
    if user is None and not sessions:
        raise CommandRefused(f"user {username} not found in realm {realm}")
    failed = await context.attempts.list_of_user(identify_for_throttle(realm, username))
    facts = {"registered": user is not None, "sessions_truncated": is_cut}
    facts |= _describe(user or User(realm=realm, username=username))
    shown = facts | {"failed_logins": "; ".join(map(_describe_failed, failed)) or "none"}
    lines = [*list_facts(shown), *list_table(sessions, SESSION_COLUMNS)]
    rows = [each._asdict() | {"wait_seconds": each.wait_seconds} for each in failed]
    output.show(facts | {"failed_logins": rows, "sessions": sessions}, lines)


@command(
    users,
    "create",
    params=[_NAME, list_option("--role", "roles", "Role.", ROLES), _ID],
    examples=("user create carol@example.com --role enduser --name Carol",),
)
@_username_and_realm
@_password_file
async def create_user(
    context: AdminContext, output: Output, username: str, realm: str, password_file: str | None, **options: Any
) -> None:
    """Create the record of a user.

    The password is read from the terminal, or from a file. A user of an identity provider has no password here.
    """
    await context.check_realm(realm)
    if realm != MAIN_REALM and password_file is not None:
        raise WrongInput(f"--password-file: users of realm {realm} log in at its identity provider")
    identity = await context.identify_user(realm, username)
    username = identity.username
    user_id = make_user_id() if realm == MAIN_REALM else ""
    user = change_record(User(realm=realm, username=username, id=user_id), options)
    validate_user(user, None, context.settings.min_password_characters)
    if await context.registry.users.find(identity) is not None:
        raise CommandRefused(f"user {username} already exists in realm {realm}")
    if realm == MAIN_REALM:
        password = _read_password(context, user, password_file)
        user = msgspec.structs.replace(user, password_hash=await _hash(password))
    await context.editor.create_user(user)
    output.done(f"Created user {username} in realm {realm}.", **_describe(user))
    output.warn(list_user_warnings(user))


@asking_command(
    users,
    "update",
    params=[_NAME, *part_options("role", "roles", ROLES)],
    examples=(
        "user update carol@example.com --add-role partner",
        'user update carol@example.com --name "Carol Example"',
    ),
)
@_username_and_realm
async def update_user(context: AdminContext, output: Output, username: str, realm: str, **options: Any) -> None:
    """Change the given fields of a user. Removing a role revokes the user's sessions."""
    await context.check_realm(realm)
    old = await context.registry.users.find(await context.identify_user(realm, username))
    if old is None:
        raise CommandRefused(f"no record for user {username} in realm {realm}")
    new = change_record(old, options)
    validate_user(new, None, context.settings.min_password_characters)
    if new == old:
        raise CommandRefused("nothing to change: give at least one option with a new value (see --help)")
    if lost := ", ".join(sorted(set(old.roles) - set(new.roles))):
        output.ask(f"Remove {lost} from user {username} of realm {realm} and revoke all of their sessions?")
    await context.editor.change_user(old.identity, replacing(old, new))
    output.done(f"User {username} was updated.", **_describe(new))
    output.warn(list_user_warnings(new))


@asking_command(users, "rename", examples=("user rename carol@example.com carol@example.org",))
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
async def rename_user(context: AdminContext, output: Output, old: str, new: str) -> None:
    """Give a user of realm main another name.

    This revokes all of their sessions and keeps the id, the password and the roles. If a rename was interrupted, run
    the same command again to complete it.
    """
    identity, renamed = await context.identify_user(MAIN_REALM, old), await context.identify_user(MAIN_REALM, new)
    validate_user(User(realm=MAIN_REALM, username=renamed.username), None, context.settings.min_password_characters)
    output.ask(f"Rename user {identity.username} to {renamed.username} and revoke all of their sessions?")

    def rename(user: User | None) -> User:
        if user is None:
            raise CommandRefused(f"user {identity.username} not found in realm {MAIN_REALM}")
        return msgspec.structs.replace(user, username=renamed.username)

    user, _ = await context.editor.put_user(identity, rename)
    output.done(f"User {identity.username} is now {renamed.username}.", **_describe(user))


@asking_command(
    users,
    "set-password",
    examples=("user set-password carol@example.com", "user set-password carol@example.com --password-file p.txt"),
)
@_username_and_realm
@_password_file
@click.option("--keep-sessions", is_flag=True, help="Do not revoke the user's sessions.")
async def set_password(
    context: AdminContext, output: Output, username: str, realm: str, password_file: str | None, keep_sessions: bool
) -> None:
    """Set a user's password and revoke all of their sessions.

    With a password from a file or a pipe, the command asks for confirmation, unless the sessions are kept.
    """
    if realm != MAIN_REALM:
        raise CommandRefused(f"users of realm {realm} log in at its identity provider and have no password here")
    user = await context.get_known_user(realm, username)
    password = _read_password(context, user, password_file)
    if not keep_sessions and (password_file is not None or not sys.stdin.isatty()):
        output.ask(f"Replace the password of {username} and revoke all of their sessions?")
    fields = {"password_hash": await _hash(password), "upgraded_from": None}
    await context.editor.change_user(
        user.identity, lambda user: msgspec.structs.replace(user, **fields), keep_sessions=keep_sessions
    )
    ended = "continue" if keep_sessions else "are revoked"
    output.done(
        f"User {username} has a new password; their sessions {ended}.",
        username=username,
        realm=realm,
        sessions_revoked=not keep_sessions,
    )


@asking_command(users, "import", examples=("user import users.jsonl",))
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
async def import_users(context: AdminContext, output: Output, path: Path) -> None:
    """Add and update users of realm main.

    Each line of the file is a JSON object with the fields that a user has in a seed file. Missing fields are
    not changed. A new password, a removed role and `disabled` revoke the user's sessions. All lines are checked before
    anything is written. You can repeat an interrupted import.
    """
    # The libraries of hashes and ctypes delay other commands.
    from service.registry.user_import import UserImport
    from service.system.process import LEAST_PRIORITY, lower_thread_priority

    lower_thread_priority(LEAST_PRIORITY)
    with _open(path) as file:
        least = context.settings.min_password_characters
        users = UserImport(file, context.registry, context.pending_revocations, least)
        with output.progress(f"Checking {path.name}") as advance:
            await users.check(advance)
        output.ask_at_terminal(
            f"Import {users.total} users? This revokes the sessions of users who get a new password or lose a role."
        )
        with output.progress(f"Importing {path.name}") as advance:
            counts = await users.apply(advance, actor=context.actor)
    sentence = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in counts.items())
    output.done(f"Users: {sentence}.", **counts)


@asking_command(users, "disable", examples=("user disable carol@example.com",))
@_username_and_realm
async def disable_user(context: AdminContext, output: Output, username: str, realm: str) -> None:
    """Disable a user and revoke all of their sessions."""
    identity = (await context.get_known_user(realm, username)).identity
    output.ask(f"Disable user {username} of realm {realm} and revoke all of their sessions?")
    await context.editor.change_user(
        identity, lambda user: msgspec.structs.replace(user, disabled=True), or_unlisted=True
    )
    sentence = f"User {username} is disabled, and their sessions are revoked."
    output.done(sentence, username=username, realm=realm, disabled=True)


@command(users, "enable", examples=("user enable carol@example.com",))
@_username_and_realm
async def enable_user(context: AdminContext, output: Output, username: str, realm: str) -> None:
    """Let a disabled user log in again."""
    identity = await context.identify_user(realm, username)
    await context.editor.change_user(identity, lambda user: msgspec.structs.replace(user, disabled=False))
    output.done(f"User {username} is enabled.", username=username, realm=realm, disabled=False)


@command(users, "unlock", examples=("user unlock carol@example.com",))
@_username_and_realm
async def unlock_user(context: AdminContext, output: Output, username: str, realm: str) -> None:
    """Reset the failed logins of a user.

    A locked user can then log in. The limits of IP addresses remain. For a realm with an identity provider, give the
    name as it was typed.
    """
    user = await context.get_known_user(realm, username)
    cleared = await context.attempts.clear_user(identify_for_throttle(realm, username))
    if cleared:
        context.record("user_unlocked", **name_user(user), reason="cli")
    counters = f"{cleared} failed-login counters were cleared" if cleared else "there were no failed logins"
    output.done(f"Unlocked {username}: {counters}.", username=username, realm=realm, cleared=cleared)
    if user.disabled:
        output.note(f"User {username} is disabled and cannot log in until `user enable`.", "yellow")


@asking_command(users, "delete", examples=("user delete carol@example.com",))
@_username_and_realm
async def delete_user(context: AdminContext, output: Output, username: str, realm: str) -> None:
    """Delete a user and revoke all of their sessions.

    A user of an identity provider can still log in, with the default roles of the realm.
    """
    identity = await context.identify_user(realm, username)
    if await context.registry.users.find(identity) is not None:
        output.ask(f"Delete user {username} of realm {realm} and revoke all of their sessions?")
    await context.editor.delete_user(identity)
    sentence = f"User {username} is deleted, and their sessions are revoked."
    output.done(sentence, username=username, realm=realm, deleted=True)


def _read_password(context: AdminContext, user: User, file: str | None) -> str:
    """Read a new password. Raises WrongInput if it breaks a rule for passwords."""
    password = read_secret(f"Password of {user.username}", file, what="password", twice=True)
    validate_user(user, password, context.settings.min_password_characters)
    return password


def _open(path: Path) -> BinaryIO:
    """Open a file that is read twice, so it cannot be a pipe. Raises WrongInput."""
    try:
        if path.is_file():
            return path.open("rb")
    except OSError as error:
        raise WrongInput(f"{path} cannot be read: {error.strerror}") from None
    raise WrongInput(f"{path}: expected a file")


async def _hash(password: str) -> str:
    from service.crypto.password_hashing import hash_password  # imported here: other commands need no hash

    return await asyncio.to_thread(hash_password, password)


def _describe_failed(failed: FailedLogins) -> str:
    wait = f", next try in {failed.wait_seconds} s" if failed.wait_seconds else ""
    return f"{failed.failed} of {failed.limit} from {failed.origin or 'all IP addresses'}{wait}"


def _describe(user: User) -> dict[str, Any]:
    """Return the fields of a user without the password hash."""
    shown = {field: getattr(user, field) for field in ("username", "realm", "name", "roles", "disabled")}
    return shown | {"id": user.subject, "password_set": user.password_hash is not None}
