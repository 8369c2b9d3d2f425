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
from service.registry.record_changes import SECRET_FIELDS, EntryKind, Record, list_changed_fields, record_change
from service.registry.seed_file.entries import Seed
from service.registry.seed_file.plan import Act, Planned
from service.registry.warnings import list_client_mistakes, list_user_warnings

MAX_REPORTED: Final = 100
"""The number of entries that get a security event of their own. Further entries only do if sessions end.

All others count only in the totals.
"""

_MAX_NAMED: Final = 5
_COUNTS: Final[dict[Act, str]] = {"add": "added", "update": "updated", "remove": "removed"}


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
    """The change of one entry: of a realm, of a client by its client_id, or of a user by realm and user name."""

    kind: EntryKind
    name: str
    action: Act
    realm: str = ""
    fields: tuple[FieldChange, ...] = ()
    ends_sessions: bool = False


class Outcome:
    """The result of applying a seed, or of a dry run, to which each planned change is added.

    `counts` are the numbers of entries by kind and by what was done. `removed` entries are no longer in the file; the
    others are. `ending` is the number of changes that end sessions. `is_whole` is False if an entry was left out. Only
    a dry run has `details`.
    """

    def __init__(self, seed: Seed) -> None:
        sizes = {"realms": len(seed.realms), "clients": len(seed.clients), "users": len(seed.users)}
        self.counts = {name: Counter(added=0, updated=0, removed=0, unchanged=size) for name, size in sizes.items()}
        self.details: list[Change] = []
        self.ending = 0
        self.is_whole = True
        self._seed_warnings = list(_list_seed_warnings(seed))
        self._names = defaultdict[str, list[str]](list)

    @property
    def changes(self) -> int:
        return sum(counts.total() - counts["unchanged"] for counts in self.counts.values())

    @property
    def totals(self) -> Counter[str]:
        """The numbers over all kinds of entries."""
        return sum(self.counts.values(), Counter())

    @property
    def warnings(self) -> tuple[str, ...]:
        return (*self._seed_warnings, *(f"{_join(names)}: {warning}" for warning, names in self._names.items()))

    def add(self, planned: Planned) -> None:
        item, act = planned.item, planned.act
        if planned.trouble:
            self._names[f"left unchanged, because {planned.trouble}"].append(item.name)
            self.is_whole = False
        if act is None:
            return
        counts = self.counts[f"{item.kind}s"]
        counts[_COUNTS[act]] += 1
        counts["unchanged"] -= act != "remove"
        self.ending += planned.ending is not None
        for warning in _list_record_warnings(planned):
            self._names[warning].append(item.name)


def record_planned(planned: Planned, actor: str, *, force: bool) -> None:
    """Record one event per change of the entry."""
    reason = "seed_pruned" if planned.act == "remove" else "seed_forced" if force else "seed"
    record_change(planned.old, planned.new, realm=planned.item.name, actor=actor, reason=reason)


def record_totals(outcome: Outcome, actor: str) -> None:
    """Record one event with the totals of the seed, if the seed changed anything."""
    if outcome.changes:
        record_event("seed_applied", **{name: outcome.totals[name] for name in _COUNTS.values()}, actor=actor)


def describe(planned: Planned) -> Change:
    """Return the change without secrets. The act must not be None."""
    assert planned.act is not None
    item, fields = planned.item, dict[str, FieldChange]()
    if planned.old is not None and planned.new is not None:
        for change in _compare(planned.old, planned.new):
            fields.setdefault(change.field, change)
    return Change(
        kind=item.kind,
        name=item.name,
        action=planned.act,
        realm=item.identity.realm if item.identity else "",
        fields=tuple(fields.values()),
        ends_sessions=planned.ending is not None,
    )


def _list_seed_warnings(seed: Seed) -> Iterator[str]:
    """Yield a line for each way to take over user names of a realm, and one line for all short client secrets."""
    for name, realm in seed.realms.items():
        for risk in list_identity_risks(realm.username_claim, trust_email=realm.trust_email):
            yield f"realm {name}: {risk}"
    short = [client.client_id for client in seed.clients if is_short_secret(client.client_secret)]
    if short:
        yield f"client secrets shorter than {MIN_SECRET_CHARACTERS} characters can be guessed: {_join(short)}"


def _list_record_warnings(change: Planned) -> Iterator[str]:
    old, new = change.old, change.new
    if isinstance(old, Client) and isinstance(new, Client) and new.is_public > old.is_public:
        yield "it no longer has a secret, so anyone may use its client_id"
    if isinstance(new, Client):
        yield from list_client_mistakes(new)
    if isinstance(new, User):
        yield from list_user_warnings(new)
        if old is None and new.id not in ("", getattr(change.item.entry, "id", ""), new.identity.digest):
            yield "the id derived from the user name belongs to another user, so a random id was chosen"
    if isinstance(new, IdentityProvider) and change.item.name not in REALMS:
        yield f"this realm cannot be used: only {', '.join(REALMS)} can appear in a scope"


def _compare(old: Record, new: Record) -> Iterator[FieldChange]:
    for name in list_changed_fields(old, new):
        if name == "client_secret_hash" and getattr(new, name) is None:
            yield FieldChange(SECRET_FIELDS[name], "set", "removed: the client becomes public")
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
