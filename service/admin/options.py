"""Options that set the fields of a record, and the change that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import click
import msgspec

from service.admin.output import WrongInput
from service.protocol.client import Client
from service.protocol.user import User

Record = TypeVar("Record", Client, User)


def list_option(option: str, name: str, text: str = "", choices: Sequence[str] = ()) -> click.Option:
    """Return an option that may be repeated. Without choices it takes any text."""
    choice = click.Choice(choices) if choices else None
    return click.Option([option, name], multiple=True, help=f"{text} May be repeated.".strip(), type=choice)


def part_options(option: str, name: str, choices: Sequence[str] = ()) -> tuple[click.Option, click.Option]:
    """Return the options that add items to the field of this name, and remove some."""
    return (
        list_option(f"--add-{option}", f"add_{name}", choices=choices),
        list_option(f"--remove-{option}", f"remove_{name}", choices=choices),
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
            raise WrongInput(f"{item}: cannot be removed, because it is not listed")
    return tuple(item for item in dict.fromkeys((*items, *added)) if item not in removed)
