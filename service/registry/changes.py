"""What a seed changed, for whoever reads the events: entry by entry up to a bound, and all of it in one number each.

Clauses: SPEC §6
"""

from __future__ import annotations

from typing import Final, Unpack

from service.audit import Event, Fields, record_event

MOST_TOLD: Final = 100
"""Of more entries than this the numbers must do."""


class SeedChanges:
    """`actor` is whose act it is: `service` at a start, at the console who sits there."""

    def __init__(self, actor: str) -> None:
        self._actor = actor
        self._told = 0
        self.added = 0
        self.updated = 0
        self.removed = 0

    def note_realm(self, realm: str, *, is_new: bool) -> None:
        self._count(is_new)
        self._tell("realm_created" if is_new else "realm_updated", realm=realm)

    def note_client(self, client_id: str, *, is_new: bool) -> None:
        self._count(is_new)
        self._tell("client_created" if is_new else "client_updated", client_id=client_id)

    def note_user(self, realm: str, username: str, *, is_new: bool) -> None:
        self._count(is_new)
        self._tell("user_created" if is_new else "user_updated", username=username, realm=realm)

    def tell_all(self) -> None:
        """One event for the whole seed, where it changed anything."""
        if self.added or self.updated or self.removed:
            record_event(
                "seed_applied", added=self.added, updated=self.updated, removed=self.removed, actor=self._actor
            )

    def _count(self, is_new: bool) -> None:
        self.added += is_new
        self.updated += not is_new

    def _tell(self, event: Event, **names: Unpack[Fields]) -> None:
        self._told += 1
        if self._told <= MOST_TOLD:
            names["actor"] = self._actor
            record_event(event, **names)
