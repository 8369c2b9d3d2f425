"""What a seed changed, for whoever reads the events: entry by entry up to a bound, and the number of all of them.

Clauses: SPEC §6
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from service.observability.audit import Event, record_event
from service.registry.seed_file.plan import Act, EntryKind

MAX_REPORTED: Final = 100
"""Of more entries than this the numbers must do."""

_EVENTS: Final[dict[tuple[EntryKind, Act], Event]] = {
    ("realm", "add"): "realm_created",
    ("realm", "update"): "realm_updated",
    ("realm", "restore"): "realm_updated",
    ("realm", "remove"): "realm_deleted",
    ("client", "add"): "client_created",
    ("client", "update"): "client_updated",
    ("client", "restore"): "client_updated",
    ("client", "remove"): "client_deleted",
    ("user", "add"): "user_created",
    ("user", "update"): "user_updated",
    ("user", "restore"): "user_updated",
    ("user", "remove"): "user_deleted",
}


class SeedEvents:
    """`actor` is whose act it is: `service` at a start, at the console who sits there."""

    def __init__(self, actor: str) -> None:
        self._actor = actor
        self._acts: Counter[Act] = Counter()

    def note(self, kind: EntryKind, act: Act, name: str, realm: str = "") -> None:
        """One entry that was written; `realm` is a user's."""
        self._acts[act] += 1
        if self._acts.total() > MAX_REPORTED:
            return
        record_event(
            _EVENTS[kind, act],
            client_id=name if kind == "client" else "",
            username=name if kind == "user" else "",
            realm=name if kind == "realm" else realm,
            actor=self._actor,
        )

    def record_all(self) -> None:
        """One event for the whole seed, where it changed anything."""
        if self._acts:
            record_event(
                "seed_applied",
                added=self._acts["add"],
                updated=self._acts["update"] + self._acts["restore"],
                removed=self._acts["remove"],
                actor=self._actor,
            )
