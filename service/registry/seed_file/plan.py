"""The changes that a seed makes to the registry. Only `Planned` holds hashes of secrets; all other types may be shown.

A dry run shows the changes in advance, and the application of a seed counts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import msgspec

from service.protocol.client import Client
from service.protocol.provider import IdentityProvider
from service.protocol.user import User

EntryKind = Literal["realm", "client", "user"]
Act = Literal["add", "update", "restore", "remove"]
Record = IdentityProvider | Client | User

_SECRET_FIELDS: Final = {
    "client_secret_hash": "client_secret",
    "has_short_secret": "client_secret",
    "previous_secret_hash": "previous_secret",
    "previous_secret_until_ms": "previous_secret",
    "sealed_secret": "client_secret",
    "password_hash": "password",
    "upgraded_from": "password",
}


class FieldChange(msgspec.Struct, frozen=True):
    """The change of one field. `old` and `new` are None if the field is a secret."""

    field: str
    old: Any = None
    new: Any = None

    def __str__(self) -> str:
        if self.old is None and self.new is None:
            return f"{self.field}: changed"
        return f"{self.field}: {_show(self.old)} → {_show(self.new)}"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one entry. A realm is named by its name, a client by its client_id, a user by realm and user name.

    The act `restore` means that the text is the one last applied, but the record was changed or deleted elsewhere.
    """

    kind: EntryKind
    name: str
    act: Act
    realm: str = ""
    fields: tuple[FieldChange, ...] = ()
    ends_sessions: bool = False


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of entries of one kind. `removed` entries are no longer in the file; the others are."""

    added: int = 0
    updated: int = 0
    restored: int = 0
    removed: int = 0
    unchanged: int = 0

    @property
    def changes(self) -> int:
        return self.added + self.updated + self.restored + self.removed


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of applying a seed."""

    realms: Counts = Counts()
    clients: Counts = Counts()
    users: Counts = Counts()
    warnings: tuple[str, ...] = ()

    @property
    def changes(self) -> int:
        return self.realms.changes + self.clients.changes + self.users.changes


class Difference(Outcome, frozen=True, kw_only=True):
    """The result of a dry run. `first` holds the first changes; further changes are only counted.

    `staying_clients` and `staying_users` are the numbers of clients and users that were never in a seed. Pruning leaves
    them alone.
    """

    first: tuple[Change, ...] = ()
    staying_clients: int = 0
    staying_users: int = 0

    @property
    def unnamed(self) -> int:
        """The number of changes that are not in `first`."""
        return self.changes - len(self.first)


class Planned(NamedTuple):
    """A change with both records. The records hold hashes, so only the result of `describe` may be shown."""

    kind: EntryKind
    name: str
    act: Act
    old: Record | None
    new: Record | None
    ends_sessions: bool
    realm: str = ""


def plan_change(
    kind: EntryKind,
    name: str,
    old: Record | None,
    new: Record,
    is_changed: bool,
    force: bool,
    ends_sessions: bool,
    realm: str = "",
) -> tuple[Planned, ...]:
    """Return the change of an entry, or nothing.

    An entry with unchanged text is only applied again by `force`, and only if the record differs.
    """
    act: Act = "restore" if not is_changed else "update" if old is not None else "add"
    if not is_changed and not (force and not is_same(old, new)):
        return ()
    return (Planned(kind, name, act, old, new, ends_sessions, realm),)


def describe(planned: Planned) -> Change:
    fields = () if planned.old is None or planned.new is None else dict.fromkeys(_compare(planned.old, planned.new))
    return Change(
        kind=planned.kind,
        name=planned.name,
        act=planned.act,
        realm=planned.realm,
        fields=tuple(fields),
        ends_sessions=planned.ends_sessions,
    )


def is_same(old: Record | None, new: Record) -> bool:
    """Return True if both records are equal but for `revision`, which is new after each write."""
    return old is not None and not any(_compare(old, new))


def _compare(old: Record, new: Record) -> Iterator[FieldChange]:
    for name in old.__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        if name in _SECRET_FIELDS and before != after:
            yield FieldChange(_SECRET_FIELDS[name])
        elif before != after and name != "revision":
            yield FieldChange(name, before, after)


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) or "none" if isinstance(value, tuple) else str(value) or "none"
