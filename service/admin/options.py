"""Options that set the fields of a record, the change that they make, and its check by the rules of the seed file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import click
import msgspec

from service.admin.output import WrongInput
from service.protocol.client import Client
from service.protocol.user import User
from service.registry.seed_file.entries import ClientEntry, UserEntry

Record = TypeVar("Record", Client, User)


def list_option(option: str, name: str, text: str, choices: Sequence[str] = ()) -> click.Option:
    """Return an option that may be repeated. Without choices it takes any text."""
    choice = click.Choice(choices) if choices else None
    return click.Option([option, name], multiple=True, help=f"{text} May be repeated.", type=choice)


def part_options(option: str, name: str, choices: Sequence[str] = ()) -> tuple[click.Option, click.Option]:
    """Return the options that add items to the field of this name, and remove some."""
    return (
        list_option(f"--add-{option}", f"add_{name}", "Add a value.", choices),
        list_option(f"--remove-{option}", f"remove_{name}", "Remove a value.", choices),
    )


def change_record(old: Record, options: Mapping[str, Any]) -> Record:
    """Return the record with the changes that the options name.

    An option that is named like a field sets it. `add_x` and `remove_x` change the items of the field x, which is a
    list, or a text with spaces between the items. Raises WrongInput if an item to remove is not there.
    """
    given = {name: value for name, value in options.items() if value not in (None, ())}
    fields: dict[str, Any] = {}
    for name in old.__struct_fields__:
        value = given.get(name, getattr(old, name))
        added, removed = given.get(f"add_{name}", ()), given.get(f"remove_{name}", ())
        if added or removed:
            is_text = isinstance(value, str)
            items = _change_items(
                value.split() if is_text else value, " ".join(added).split(), " ".join(removed).split()
            )
            value = " ".join(items) if is_text else items
        fields[name] = tuple(dict.fromkeys(value)) if isinstance(value, tuple) else value
    return msgspec.structs.replace(old, **fields)


def _change_items(items: Sequence[str], added: Sequence[str], removed: Sequence[str]) -> tuple[str, ...]:
    """Return the items with additions at the end."""
    for item in removed:
        if item not in items:
            raise WrongInput(f"{item} is not in the list")
    return tuple(item for item in dict.fromkeys((*items, *added)) if item not in removed)


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
    entry = UserEntry(username=user.username, realm=user.realm, id=user.id, name=user.name, password=password)
    check_user(entry, "", mistakes, least_characters)
    if password is None:
        mistakes.pop("password", None)
    _refuse(mistakes)


def _refuse(mistakes: dict[str, str]) -> None:
    if mistakes:
        raise WrongInput("\n".join(f"{place}: {mistake}" for place, mistake in mistakes.items()))
