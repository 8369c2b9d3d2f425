"""Checks of values given to the console, by the rules of the seed file."""

from __future__ import annotations

import re
from typing import Final

from service.admin.output import WrongInput
from service.protocol.client import Client
from service.protocol.user import User
from service.registry.seed_file.entries import ClientEntry, UserEntry

_SOURCES: Final = {
    "client_id": "ID",
    "client_name": "--name",
    "grant_types": "--grant-type",
    "redirect_uris": "--redirect-uri",
    "cors_origins": "--cors-origin",
    "username": "NAME",
    "password": "password",
}
"""The argument or option of the console behind each field of an entry, if it is not named like the field."""

_PLACE: Final = re.compile(r"^(\w+)(\[\d+\])?: ")


def validate_client(client: Client) -> None:
    """Raise WrongInput with every mistake in the fields that a seed file could have."""
    from service.registry.seed_file.check import check_client  # the libraries of hashes delay a command by a tenth

    fields = [name for name in ClientEntry.__struct_fields__ if name in Client.__struct_fields__]
    mistakes: dict[str, str] = {}
    check_client(ClientEntry(**{name: getattr(client, name) for name in fields}), "", mistakes)
    _refuse(mistakes)


def validate_user(user: User, password: str | None, least_characters: int) -> None:
    """Raise WrongInput with every mistake in the names of a user, and in a new password if there is one."""
    from service.registry.seed_file.check import check_user  # as above

    mistakes: dict[str, str] = {}
    check_user(UserEntry(username=user.username, name=user.name, password=password), "", mistakes, least_characters)
    if password is None:
        mistakes.pop("password")
    _refuse(mistakes)


def _refuse(mistakes: dict[str, str]) -> None:
    if mistakes:
        lines = (f"{place}: {mistake}" for place, mistake in mistakes.items())
        raise WrongInput("\n".join(_PLACE.sub(_name_source, line, count=1) for line in lines))


def _name_source(place: re.Match[str]) -> str:
    """Return the console's option in place of the field of the seed file."""
    return _SOURCES.get(place[1], f"--{place[1].replace('_', '-')}") + ": "
