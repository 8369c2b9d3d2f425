"""The changes that a seed makes to the registry. Only `Planned` holds hashes of secrets; all other types may be shown.

A dry run shows the changes in advance, and the application of a seed counts them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from service.protocol.client import Client
from service.protocol.provider import IdentityProvider
from service.protocol.user import User
from service.registry.seed_file.field_digests import CLIENT_SECRET, LETTERS, PASSWORD, Comparison

EntryKind = Literal["realm", "client", "user"]
Act = Literal["add", "update", "restore", "remove"]
Record = IdentityProvider | Client | User
RecordT = TypeVar("RecordT", IdentityProvider, Client, User)

SECRET_FIELDS: Final = {
    "client_secret_hash": "client_secret",
    "has_short_secret": "client_secret",
    "previous_secret_hash": "previous_secret",
    "previous_secret_until_ms": "previous_secret",
    "sealed_secret": "client_secret",
    "password_hash": "password",
    "upgraded_from": "password",
}
"""The fields of records that hold a secret or belong to one, with the names under which they are shown."""

_RECORD_FIELDS: Final[Mapping[str, Collection[str]]] = {
    **{letter: [name for name in LETTERS if LETTERS[name] == letter] for letter in LETTERS.values()},
    CLIENT_SECRET: [name for name, shown in SECRET_FIELDS.items() if shown in ("client_secret", "previous_secret")],
    PASSWORD: [name for name, shown in SECRET_FIELDS.items() if shown == "password"],
}
"""The fields of records that come from the fields of an entry with this letter."""


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

    The act `restore` means that the change undoes what was changed or deleted elsewhere.
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

    `ending` is the number of changes that end sessions, `made_public` that of clients which lose their secret.
    `staying_clients` and `staying_users` are the numbers of
    clients and users that were never in a seed. Pruning leaves them alone.
    """

    first: tuple[Change, ...] = ()
    ending: int = 0
    made_public: int = 0
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

    @property
    def makes_public(self) -> bool:
        """True if a client with a secret loses it, so that anyone may use its client_id."""
        old, new = self.old, self.new
        return isinstance(old, Client) and isinstance(new, Client) and new.is_public and not old.is_public


def is_deleted(comparison: Comparison, old: Record | None, *, force: bool) -> bool:
    """Return True if the record was deleted elsewhere and the seed leaves it deleted."""
    return old is None and not (comparison.may_add or force)


def is_whole(comparison: Comparison, old: Record | None, *, force: bool) -> bool:
    """Return True if the seed decides over the whole record, and False if only over the changed fields.

    An unclear comparison concerns the whole record, but its result is only reported.
    """
    return old is None or force or comparison.is_unclear


def plan_record(comparison: Comparison, old: RecordT | None, made: RecordT, *, force: bool) -> RecordT:
    """Return the record that the seed would write. `made` is the record of the whole entry."""
    if old is None or is_whole(comparison, old, force=force):
        return made
    return _merge(old, made, comparison.changed)


def plan_change(
    kind: EntryKind,
    name: str,
    comparison: Comparison,
    old: RecordT | None,
    made: RecordT,
    new: RecordT,
    *,
    ends_sessions: bool,
    realm: str = "",
) -> Planned | None:
    """Return the change of an entry from `old` to `new`, or None if there is nothing to write.

    The change restores the record if it goes beyond what was edited in the file.
    """
    if is_same(old, new) and not comparison.is_pending:
        return None
    act: Act = "update"
    if old is None:
        act = "add" if comparison.may_add else "restore"
    elif not is_same(_merge(old, made, comparison.changed), new):
        act = "restore"
    return Planned(kind, name, act, old, new, ends_sessions, realm)


def _merge(old: RecordT, made: RecordT, letters: Collection[str]) -> RecordT:
    """Return the old record with the fields of these letters, and no others, taken from the other record."""
    names = {name for letter in letters for name in _RECORD_FIELDS[letter]}
    return msgspec.structs.replace(old, **{name: getattr(made, name) for name in names & set(old.__struct_fields__)})


def describe(planned: Planned) -> Change:
    changes = [] if planned.old is None or planned.new is None else list(_compare(planned.old, planned.new))
    fields = {change.field: change for change in reversed(changes)}  # the first of a name counts
    return Change(
        kind=planned.kind,
        name=planned.name,
        act=planned.act,
        realm=planned.realm,
        fields=tuple(fields[name] for name in dict.fromkeys(change.field for change in changes)),
        ends_sessions=planned.ends_sessions,
    )


def is_same(old: Record | None, new: Record) -> bool:
    return old is not None and not list_changed_fields(old, new)


def list_changed_letters(old: Record | None, new: Record | None) -> frozenset[str]:
    """Return the letters of the fields that differ, or all letters if the record was made or deleted."""
    if old is None or new is None:
        return frozenset(_RECORD_FIELDS)
    changed = set(list_changed_fields(old, new))
    return frozenset(letter for letter, names in _RECORD_FIELDS.items() if changed & set(names))


def list_changed_fields(old: Record, new: Record) -> list[str]:
    """Return the names of the fields that differ, but for `revision`, which is new after each write."""
    return [name for name in old.__struct_fields__ if name != "revision" and getattr(old, name) != getattr(new, name)]


def _compare(old: Record, new: Record) -> Iterator[FieldChange]:
    for name in list_changed_fields(old, new):
        if name == "client_secret_hash" and getattr(new, name) is None:
            yield FieldChange(SECRET_FIELDS[name], "set", "none: the client becomes public")
        elif name in SECRET_FIELDS:
            yield FieldChange(SECRET_FIELDS[name])
        else:
            yield FieldChange(name, getattr(old, name), getattr(new, name))


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) or "none" if isinstance(value, tuple) else str(value) or "none"
