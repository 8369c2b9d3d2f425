"""What a seed changed, for whoever reads the events: entry by entry up to a bound, and all of it in one number each.

Clauses: SPEC §6
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from service.audit import Event, Fields, record_event
from service.registry.changes import Act, Kind, Outcome, Planned

MOST_TOLD: Final = 100
"""Of more entries than this the numbers must do."""

_EVENTS: Final[dict[tuple[Kind, Act], Event]] = {
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
        self._told = 0

    def tell(self, planned: Iterable[Planned]) -> None:
        """What was written."""
        for each in planned:
            self._told += 1
            if self._told <= MOST_TOLD:
                record_event(_EVENTS[each.kind, each.act], **self._name(each))

    def tell_all(self, outcome: Outcome) -> None:
        """One event for the whole seed, where it changed anything."""
        kinds = (outcome.realms, outcome.clients, outcome.users)
        if outcome.changes:
            record_event(
                "seed_applied",
                added=sum(kind.added for kind in kinds),
                updated=sum(kind.updated + kind.restored for kind in kinds),
                removed=sum(kind.removed for kind in kinds),
                actor=self._actor,
            )

    def _name(self, planned: Planned) -> Fields:
        match planned.kind:
            case "user":
                return {"username": planned.name, "realm": planned.realm, "actor": self._actor}
            case "client":
                return {"client_id": planned.name, "actor": self._actor}
            case _:
                return {"realm": planned.name, "actor": self._actor}
