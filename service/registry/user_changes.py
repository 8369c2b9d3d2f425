"""Changes of a user of realm main that name some fields and leave the others as they are: one line of an import, or one
request of a client.

Clauses: SPEC §2.3
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from service.protocol.scope import MAIN_REALM
from service.protocol.user import User, UserIdentity, identify_user
from service.registry.records import make_user, merge_record
from service.registry.seed_file.check import Mistakes, check_user
from service.registry.seed_file.entries import UserEntry
from service.registry.seed_file.read import read_entry
from service.store.registry.user_ids import make_user_id


class UserChange(NamedTuple):
    """The fields that a change names. `password` stands for a password and for its hash."""

    identity: UserIdentity
    entry: UserEntry
    fields: frozenset[str]

    @property
    def names_password(self) -> bool:
        """True if the change has a password or a hash, as one that creates a user must."""
        return "password" in self.fields

    def changes_id(self, old: User | None) -> bool:
        """True if the change names another id than the user has. No change may do that."""
        return old is not None and self.entry.id not in ("", old.id)

    def apply(self, old: User | None, password_hash: str | None) -> User:
        """Return the record after the change. `old` is the record until now, or None if the change creates the user.

        `password_hash` is the hash of the plain password, if the change has one. A new user without an id gets a random
        one.
        """
        made = make_user(self.entry, old, password_hash, self.entry.id or make_user_id())
        return made if old is None else merge_record(old, made, self.fields)


def read_user_change(tree: Any, at: str, mistakes: Mistakes, min_password_characters: int) -> UserChange | None:
    """Read the fields of a user, and note each mistake under `at` and the name of the field.

    Returns None if the tree is not a mapping.
    """
    entry = read_entry(tree, UserEntry, at, mistakes)
    if entry is None:
        return None
    if entry.realm != MAIN_REALM:
        mistakes.setdefault(f"{at}realm", f"expected {MAIN_REALM}, or no realm at all")
    identity = identify_user(MAIN_REALM, entry.username)
    entry = msgspec.structs.replace(entry, username=identity.username, realm=MAIN_REALM)
    if tree.get("id") == "":
        mistakes[f"{at}id"] = "expected an id, or no such field"
    check_user(entry, at, mistakes, min_password_characters)
    fields = frozenset(name.removesuffix("_hash") for name in tree)
    if "password" not in fields:
        del mistakes[f"{at}password"]  # only a change that creates the user needs one
    return UserChange(identity, entry, fields)
