"""The report of a seed: its counts, warnings, security events, and the changes that a dry run shows.

Clauses: SPEC §6
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from service.observability.audit import record_event
from service.protocol.client import MIN_SECRET_CHARACTERS, Client, is_short_secret
from service.protocol.provider import IdentityProvider, list_identity_risks
from service.protocol.scope import REALMS
from service.protocol.user import User
from service.registry.record_changes import SECRET_FIELDS, EntryKind, Record, list_changed_fields, list_update_events
from service.registry.seed_file.entries import Seed
from service.registry.seed_file.plan import Act, Planned
from service.registry.warnings import list_client_mistakes, list_user_warnings

MAX_PLAIN_PASSWORDS: Final = 100
MAX_REPORTED: Final = 100
"""The number of entries that get a security event of their own. Further entries count only in the totals."""

_MAX_NAMED: Final = 5
_CREATED_EVENTS: Final[dict[EntryKind, str]] = {
    "realm": "realm_created",
    "client": "client_created",
    "user": "user_created",
}
_DELETED_EVENTS: Final[dict[EntryKind, str]] = {
    "realm": "realm_deleted",
    "client": "client_deleted",
    "user": "user_deleted",
}
_REASONS: Final[dict[Act, str]] = {
    "add": "seed",
    "update": "seed",
    "restore": "seed_forced",
    "remove": "seed_pruned",
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
    `staying_clients` and `staying_users` are the numbers of clients and users that were never in a seed. Pruning leaves
    them alone.
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


class Report:
    """The counts and warnings of a seed, to which each batch of planned changes is added.

    `is_key_strange` is True if the seed was last applied with a secret key that is not configured here.
    """

    def __init__(self, seed: Seed, *, is_key_strange: bool) -> None:
        self._seed = seed
        self._is_key_strange = is_key_strange
        self._acts = Counter[tuple[EntryKind, Act]]()
        self._records = defaultdict[str, list[str]](list)
        self._unclear: list[str] = []
        self._plain_passwords = 0

    def add(self, batch: Sequence[Planned]) -> None:
        for planned in batch:
            self._plain_passwords += planned.is_hashed and planned.name.kind == "user"
            if planned.is_unclear:
                self._unclear.append(f"{planned.name.kind} {planned.name.name}")
            if planned.act is not None:
                self._acts[planned.name.kind, planned.act] += 1
                for warning in _list_record_warnings(planned):
                    self._records[warning].append(planned.name.name)

    @property
    def has_unclear(self) -> bool:
        """True if secrets were left alone, because it is unknown whether the file changed them."""
        return bool(self._unclear)

    @property
    def outcome(self) -> Outcome:
        """The outcome after the last batch: an entry of the seed without a planned change counts as unchanged."""
        return Outcome(
            realms=self._count("realm", len(self._seed.realms)),
            clients=self._count("client", len(self._seed.clients)),
            users=self._count("user", len(self._seed.users)),
            warnings=tuple(self._list_warnings()),
        )

    def record_totals(self, actor: str) -> None:
        """Record one event with the totals of the seed, if the seed changed anything."""
        totals = Counter[Act]()
        for (_, act), number in self._acts.items():
            totals[act] += number
        if totals:
            record_event(
                "seed_applied",
                added=totals["add"],
                updated=totals["update"] + totals["restore"],
                removed=totals["remove"],
                actor=actor,
            )

    def record_events(self, batch: Sequence[Planned], actor: str) -> None:
        """Add a batch that was written, and record an event for each thing that happened to its entries."""
        left = MAX_REPORTED - self._acts.total()
        self.add(batch)
        for planned in [each for each in batch if each.act][: max(left, 0)]:
            name = planned.name
            for event in _list_events(planned):
                record_event(
                    event,
                    client_id=name.name if name.kind == "client" else "",
                    username=name.name if name.kind == "user" else "",
                    realm=name.name if name.kind == "realm" else _get_realm(planned),
                    actor=actor,
                    reason=_REASONS[planned.act] if planned.act else "",
                )

    def _count(self, kind: EntryKind, entries: int) -> Counts:
        added, updated, restored, removed = (self._acts[kind, act] for act in ("add", "update", "restore", "remove"))
        unchanged = entries - added - updated - restored
        return Counts(added=added, updated=updated, restored=restored, removed=removed, unchanged=unchanged)

    def _list_warnings(self) -> Iterator[str]:
        yield from _list_seed_warnings(self._seed)
        if self._is_key_strange:
            yield (
                "the seed was last applied with a secret key that is not configured here, so it is unknown which "
                "secrets were edited since: those that differ from the file are left; seed --force applies all"
            )
        if self._unclear:
            yield (
                f"{_join(self._unclear)}: the secret differs from the file, and it is unknown whether the file or the "
                "console changed it: it was left as it is. Make both equal, or let seed --force apply the file"
            )
        for warning, names in self._records.items():
            yield f"{_join(names)}: {warning}"
        if self._plain_passwords > MAX_PLAIN_PASSWORDS:
            yield (
                f"{self._plain_passwords} users had plain passwords, each of which takes a slow hash here; "
                "hash-secret --file makes hashes that a seed file can have instead"
            )


def describe(planned: Planned) -> Change:
    """Return the change without secrets. The act must not be None."""
    assert planned.act is not None
    fields = dict[str, FieldChange]()
    if planned.old is not None and planned.new is not None:
        for change in _compare(planned.old, planned.new):
            fields.setdefault(change.field, change)
    return Change(
        kind=planned.name.kind,
        name=planned.name.name,
        act=planned.act,
        realm=_get_realm(planned),
        fields=tuple(fields.values()),
        ends_sessions=planned.ends_sessions,
    )


def _list_events(planned: Planned) -> Iterator[str]:
    if planned.old is not None and planned.new is not None:
        yield from list_update_events(planned.name.kind, planned.old, planned.new)
    else:
        yield (_DELETED_EVENTS if planned.new is None else _CREATED_EVENTS)[planned.name.kind]


def _get_realm(planned: Planned) -> str:
    user = planned.new or planned.old
    return user.realm if isinstance(user, User) else ""


def _list_seed_warnings(seed: Seed) -> Iterator[str]:
    """Yield a line for each way to take over user names of a realm, and one line for all short client secrets."""
    for name, realm in seed.realms.items():
        for risk in list_identity_risks(realm.username_claim, trust_email=realm.trust_email):
            yield f"realm {name}: {risk}"
    short = [client.client_id for client in seed.clients if is_short_secret(client.client_secret)]
    if short:
        yield f"client secrets of fewer than {MIN_SECRET_CHARACTERS} characters can be guessed: {_join(short)}"


def _list_record_warnings(change: Planned) -> Iterator[str]:
    if change.makes_public:
        yield "it has no secret any more, so anyone may use its client_id"
    if isinstance(change.new, Client):
        yield from list_client_mistakes(change.new)
    if isinstance(change.new, User):
        yield from list_user_warnings(change.new)
    if isinstance(change.new, IdentityProvider) and change.name.name not in REALMS:
        yield f"no scope can name this realm: those that can be named are {', '.join(REALMS)}"


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


def _join(names: Sequence[str]) -> str:
    others = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {others} more" if others > 0 else "")
