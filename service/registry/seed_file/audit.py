"""Security events for the changes of a seed: one for each entry up to a bound, and one with the totals.

Clauses: SPEC §6
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from service.observability.audit import record_event
from service.registry.seed_file.plan import Act, EntryKind

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


class SeedEvents:
    """The events of one seed. `actor` is `service` at a start, and the operator's name at the console."""

    def __init__(self, actor: str) -> None:
        self._actor = actor
        self._acts: Counter[Act] = Counter()

    def note(self, kind: EntryKind, act: Act, name: str, realm: str = "") -> None:
        """Record one entry that was written; a restored one as an update. `realm` is the realm of a user."""
        act = "update" if act == "restore" else act
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
        """Record one event with the totals of the seed, if the seed changed anything."""
        if self._acts:
            record_event(
                "seed_applied",
                added=self._acts["add"],
                updated=self._acts["update"],
                removed=self._acts["remove"],
                actor=self._actor,
            )
