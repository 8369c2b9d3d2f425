"""Security events for the changes of a seed: one for each entry up to a bound, and one with the totals.

Clauses: SPEC §6
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from service.observability.audit import record_event
from service.registry.seed_file.plan import SECRET_FIELDS, Act, EntryKind, Planned, Record, list_changed_fields

MAX_REPORTED: Final = 100
"""The number of entries that get an event of their own. Further entries count only in the totals."""

_EVENTS: Final[dict[tuple[EntryKind, Act], str]] = {
    ("realm", "add"): "realm_created",
    ("realm", "update"): "realm_updated",
    ("realm", "remove"): "realm_deleted",
    ("client", "add"): "client_created",
    ("client", "update"): "client_updated",
    ("client", "remove"): "client_deleted",
    ("user", "add"): "user_created",
    ("user", "update"): "user_updated",
    ("user", "remove"): "user_deleted",
}
_DISABLED_EVENTS: Final[dict[tuple[EntryKind, bool], str]] = {
    ("client", True): "client_disabled",
    ("client", False): "client_enabled",
    ("user", True): "user_disabled",
    ("user", False): "user_enabled",
}
_REASONS: Final[dict[Act, str]] = {
    "add": "seed",
    "update": "seed",
    "restore": "seed_forced",
    "remove": "seed_pruned",
}


class SeedEvents:
    """The events of one seed. `actor` is `service` at a start, and the operator's name at the console."""

    def __init__(self, actor: str) -> None:
        self._actor = actor
        self._acts: Counter[Act] = Counter()

    def note(self, planned: Planned) -> None:
        """Record one entry that was written, with an event for each thing that happened to it."""
        self._acts["update" if planned.act == "restore" else planned.act] += 1
        if self._acts.total() > MAX_REPORTED:
            return
        for event in _list_events(planned):
            record_event(
                event,
                client_id=planned.name if planned.kind == "client" else "",
                username=planned.name if planned.kind == "user" else "",
                realm=planned.name if planned.kind == "realm" else planned.realm,
                actor=self._actor,
                reason=_REASONS[planned.act],
            )

    def record_all(self) -> None:
        """Record one event with the totals of the seed, if the seed changed anything."""
        if self._acts:
            record_event(
                "seed_applied",
                added=self._acts["add"],
                updated=self._acts["update"],
                removed=self._acts["remove"],
                actor=self._actor,
            )


def _list_events(planned: Planned) -> Iterator[str]:
    if planned.old is None or planned.new is None:
        yield _EVENTS[planned.kind, "add" if planned.old is None else "remove"]
    else:
        yield from list_update_events(planned.kind, planned.old, planned.new)


def list_update_events(kind: EntryKind, old: Record, new: Record) -> Iterator[str]:
    """Yield the names of the events of one change. A secret and `disabled` have events of their own."""
    changed = list_changed_fields(old, new)
    if "client_secret_hash" in changed:
        yield "client_made_public" if getattr(new, "client_secret_hash", None) is None else "client_secret_rotated"
    if "password_hash" in changed:
        yield "user_password_set"
    if "disabled" in changed:
        yield _DISABLED_EVENTS[kind, getattr(new, "disabled", False)]
    if kind == "realm" or not changed or not set(changed) <= {"disabled", *SECRET_FIELDS}:
        yield _EVENTS[kind, "update"]
