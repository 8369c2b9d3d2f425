"""The changes of records and their security events. Seeds and the console share them.

Clauses: SPEC §6
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from service.observability.audit import name_user, record_event
from service.protocol.client import Client
from service.protocol.provider import IdentityProvider
from service.protocol.user import User

EntryKind = Literal["realm", "client", "user"]
Record = IdentityProvider | Client | User

SECRET_FIELDS: Final = {
    "client_secret_hash": "client_secret",
    "has_short_secret": "client_secret",
    "previous_secret_hash": "client_secret",
    "previous_secret_until_ms": "client_secret",
    "sealed_secret": "client_secret",
    "password_hash": "password",
    "upgraded_from": "password",
}
"""The fields of records that hold a secret or belong to one, with the fields of entries that decide over them."""


def list_changed_fields(old: Record, new: Record) -> list[str]:
    """Return the names of the fields that differ, but for `revision`, which is new after each write."""
    return [name for name in old.__struct_fields__ if name != "revision" and getattr(old, name) != getattr(new, name)]


def record_change(old: Record | None, new: Record | None, *, realm: str = "", **origin: str) -> None:
    """Record one security event per change of a record.

    `old` is None for a new record, and `new` for a deleted one. `realm` is the name of the realm if that changed.
    `origin` are the fields that tell where the change came from: `actor`, `reason` and more.
    """
    record = new or old
    if isinstance(record, Client):
        kind, named = "client", {"client_id": record.client_id}
    elif isinstance(record, User):
        kind, named = "user", name_user(record)
    else:
        kind, named = "realm", {"realm": realm}
    if isinstance(old, User) and isinstance(new, User) and old.username != new.username:
        named["former_username"] = old.username
    for event in _list_events(kind, old, new):
        record_event(event, **named, **origin)


def _list_events(kind: str, old: Record | None, new: Record | None) -> Iterator[str]:
    """Yield the names of the events of one change. A secret and `disabled` have events of their own."""
    if old is None or new is None:
        yield f"{kind}_deleted" if new is None else f"{kind}_created"
        return
    changed = list_changed_fields(old, new)
    if "client_secret_hash" in changed:
        yield "client_made_public" if getattr(new, "client_secret_hash", None) is None else "client_secret_rotated"
    if "password_hash" in changed:
        yield "user_password_set"
    if "disabled" in changed:
        yield f"{kind}_disabled" if getattr(new, "disabled", False) else f"{kind}_enabled"
    if "username" in changed:
        yield "user_renamed"
    if kind == "realm" or not set(changed) <= {"disabled", "username", "renamed_to", *SECRET_FIELDS}:
        yield f"{kind}_updated"
