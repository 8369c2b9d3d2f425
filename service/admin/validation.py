"""Checks of values given to the console, by the rules of the seed file."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from service.admin.output import WrongInput
from service.protocol.client import Client
from service.protocol.scope import MAIN_REALM
from service.protocol.user import MAX_PASSWORD_CHARACTERS, MIN_PASSWORD_CHARACTERS
from service.registry.seed_file.entries import ClientEntry, UserEntry

Entry = TypeVar("Entry", ClientEntry, UserEntry)


def validate_client(**fields: Any) -> Client:
    """Return a client with these fields. Raises WrongInput with every mistake."""
    # Imported here, like `read_entry` below: the libraries of hashes and of YAML delay each command by a tenth.
    from service.registry.records import make_client

    return make_client(_check(fields, ClientEntry, MIN_PASSWORD_CHARACTERS), None)


def validate_user(
    realm: str, username: str, password: str | None, roles: tuple[str, ...], name: str, min_password_characters: int
) -> UserEntry:
    """Return a user with these fields. Raises WrongInput with every mistake. The realm is not checked."""
    stand_in = {"realm": MAIN_REALM, "password": password if password is not None else "-" * MAX_PASSWORD_CHARACTERS}
    given = {"username": username, "roles": roles, "name": name} | stand_in
    entry = _check(given, UserEntry, min_password_characters)
    return msgspec.structs.replace(entry, realm=realm, password=password)


def _check(fields: dict[str, Any], kind: type[Entry], min_password_characters: int) -> Entry:
    from service.registry.seed_file.check import Mistakes, check_client, check_user
    from service.registry.seed_file.read import read_entry

    # As in YAML, a list of values is a list. An option that is not named is a field that is not there.
    given = {
        name: list(value) if isinstance(value, tuple) else value for name, value in fields.items() if value is not None
    }
    mistakes: Mistakes = {}
    entry = read_entry(given, kind, "", mistakes)
    assert entry is not None
    if isinstance(entry, ClientEntry):
        check_client(entry, "", mistakes)
    else:
        check_user(entry, "", mistakes, min_password_characters)
    if mistakes:
        raise WrongInput("\n".join(f"{place}: {mistake}" for place, mistake in mistakes.items()))
    return entry
