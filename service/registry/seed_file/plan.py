"""The changes that a seed makes: a three-way merge of the file, of what was last applied, and of the record.

Redis keeps each entry as it was last applied, as JSON with a keyed digest in place of a secret. A field that the file
changed since then is written. A field that only the console changed stays. `force` makes the record equal to the file.

Only `Planned` holds hashes of secrets; all that `describe` returns may be shown.

Clauses: SPEC §2.3
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, cast

import msgspec

from service.crypto.keyring import KEY_ID_CHARACTERS, Keyring
from service.protocol.client import Client, find_narrowing
from service.protocol.provider import IdentityProvider
from service.protocol.scope import MAIN_REALM
from service.protocol.user import User, UserIdentity, find_user_narrowing
from service.registry.record_changes import EntryKind, Record, list_changed_fields
from service.registry.records import make_client, make_provider, make_user, merge_record
from service.registry.seed_file.entries import ClientEntry, RealmEntry, UserEntry
from service.store.sessions.families import EndReason

Act = Literal["add", "update", "remove"]

_SECRETS: Final = frozenset({"client_secret", "password"})
"""The fields of entries that hold a secret. A secret and its hash are one field."""


class Item(NamedTuple):
    """An entry of the file, or one that left the file: then `entry` is None.

    A realm has its name, a client its client_id, and a user the user name and an identity.
    """

    kind: EntryKind
    name: str
    entry: RealmEntry | ClientEntry | UserEntry | None = None
    identity: UserIdentity | None = None

    @property
    def seed_name(self) -> str | UserIdentity:
        """The name under which the store has the entry as last applied."""
        return self.identity or f"{self.kind}:{self.name}"

    @property
    def record_name(self) -> tuple[EntryKind, Any]:
        """The kind and name under which the store has the record."""
        return self.kind, self.identity or self.name

    @property
    def plain_secret(self) -> str | None:
        """The secret that must be hashed, or None."""
        if isinstance(self.entry, UserEntry):
            return self.entry.password
        return self.entry.client_secret if isinstance(self.entry, ClientEntry) else None


class Edit(NamedTuple):
    """An entry compared with what was last applied. `fields` are those that the file changed since.

    `stored` is the text in Redis, and `applied` the text to store once the entry is in force. `trouble` says why the
    text in Redis cannot be read.
    """

    stored: str | None
    applied: str
    fields: frozenset[str] = frozenset()
    trouble: str = ""


class Planned(NamedTuple):
    """A change with both records. The records hold hashes, so only the result of `describe` may be shown.

    The record stays as it is if `act` is None, except that the secret of a realm may be encrypted again. `applied` is
    the text to store as last applied: None if it is stored already, and empty if the entry is to be forgotten.
    `ending` is the reason why sessions end, if any do. `trouble` says why the entry was left out.
    """

    item: Item
    act: Act | None
    old: Record | None
    new: Record | None
    applied: str | None
    ending: EndReason | None = None
    trouble: str = ""


def _read_applied(form: type[msgspec.Struct], stored: str) -> tuple[dict[str, Any], str]:
    """Return the members of an entry as last applied, and an empty text or why they cannot be read."""
    try:
        members = msgspec.json.decode(stored, type=dict[str, Any])
        msgspec.convert({name: value for name, value in members.items() if name in form.__struct_fields__}, form)
    except (msgspec.DecodeError, RecursionError) as error:
        return {}, f"the entry as last applied cannot be read: {error} (seed --force overwrites it)"
    return members, ""


def plan_edit(keyring: Keyring, item: Item, stored: str | None, *, force: bool) -> Edit:
    """Compare an entry with the text that Redis has for it, or with None.

    If the key that made the digest of a secret is gone, the secret counts as one that the file did not change. A text
    that cannot be read stays, unless `force`.
    """
    assert item.entry is not None
    texts = dict[str, bytes]()
    values = dict[str, Any]()
    for field, value in msgspec.to_builtins(item.entry).items():
        secret = field.removesuffix("_hash")
        if secret in _SECRETS:
            name = item.identity.digest if item.identity else item.name
            texts[secret] = msgspec.json.encode((item.kind, name, field, value))
            values[secret] = keyring.digest_seed(texts[secret])
        else:
            values[field] = list(value) if isinstance(value, tuple) else value
    applied = msgspec.json.encode(values).decode()
    if stored == applied:
        return Edit(stored, applied)
    last, trouble = _read_applied(type(item.entry), stored) if stored else ({}, "")
    values |= {name: value for name, value in last.items() if name not in item.entry.__struct_fields__}
    applied = msgspec.json.encode(values).decode()
    changed = {field for field in values.keys() | last.keys() if values.get(field) != last.get(field)}
    kept = ("disabled", "client_secret") if item.kind == "realm" else ("disabled",)
    changed -= set(kept) - values.keys()
    for field in changed & texts.keys() & last.keys():
        is_key_known = (last[field] or "")[:KEY_ID_CHARACTERS] in keyring.key_ids
        if not is_key_known or keyring.recognises_seed(last[field], texts[field]):
            changed.discard(field)
    return Edit(stored, applied, frozenset(changed), "" if force else trouble)


class Candidate(NamedTuple):
    """An entry that may have to be written, with the record in Redis. `trouble` says why it must not be written."""

    item: Item
    edit: Edit
    old: Record | None
    trouble: str
    force: bool

    @property
    def is_deleted(self) -> bool:
        """True if the console deleted the record, and the seed leaves it deleted. The console deletes no realm."""
        return self.old is None and self.edit.stored is not None and not (self.force or self._is_realm)

    @property
    def needs_hash(self) -> bool:
        """True if the entry has a plain secret that must be hashed, or compared with the hash of the record."""
        is_used = self._is_whole or bool(self.edit.fields & _SECRETS)
        return is_used and self.item.plain_secret is not None and not self.is_deleted

    @property
    def old_hash(self) -> str | None:
        return getattr(self.old, "password_hash" if isinstance(self.old, User) else "client_secret_hash", None)

    @property
    def _is_realm(self) -> bool:
        return self.item.kind == "realm"

    @property
    def _is_whole(self) -> bool:
        """True if the seed decides over the whole record. Only seeds change a realm."""
        return self.old is None or self.force or self._is_realm

    def plan(self, keyring: Keyring, secret_hash: str | None, unlisted: User | None, new_id: str) -> Planned:
        """Return the change. `secret_hash` is the hash of the plain secret, if that needs one.

        `unlisted` is the user of an external realm as the user was without a record. `new_id` is for a new user of
        realm main.
        """
        item, edit, old, trouble, _ = self
        if trouble := trouble or edit.trouble:
            return Planned(item, None, None, None, None, trouble=trouble)
        applied = None if edit.stored == edit.applied else edit.applied
        if self.is_deleted:
            return Planned(item, None, None, None, applied)
        new = self._make_record(keyring, secret_hash, new_id)
        if old is not None and not self._is_whole:
            new = merge_record(old, new, edit.fields)
        if self._is_realm and old != new:  # one script writes both
            applied = edit.applied
        return Planned(item, self._find_act(new), old, new, applied, _find_ending(old or unlisted, new))

    def _make_record(self, keyring: Keyring, secret_hash: str | None, new_id: str) -> Record:
        entry, old = self.item.entry, self.old
        if isinstance(entry, UserEntry):
            return make_user(entry, old if isinstance(old, User) else None, secret_hash, new_id)
        if isinstance(entry, ClientEntry):
            return make_client(entry, old if isinstance(old, Client) else None, secret_hash)
        assert entry is not None
        return make_provider(self.item.name, entry, old if isinstance(old, IdentityProvider) else None, keyring)

    def _find_act(self, new: Record) -> Act | None:
        if self.old is None:
            return "add"
        is_only_sealed_again = self._is_realm and not (self.edit.fields or self.force)
        return None if is_only_sealed_again or not list_changed_fields(self.old, new) else "update"


def plan_removal(item: Item, old: Record | None, trouble: str) -> Planned:
    """Return the removal of an entry that left the file. If its record is gone, the entry is only forgotten. If its
    record cannot be read, both stay.

    A disabled user of an external realm keeps the record, which is the block. Without a record the user could log in
    again, with the default roles of the realm.
    """
    if trouble:
        return Planned(item, None, None, None, None, trouble=trouble)
    is_block = isinstance(old, User) and old.disabled and old.realm != MAIN_REALM
    if isinstance(old, User):
        item = item._replace(name=old.username)
    is_removed = old is not None and not is_block
    reason = cast("EndReason", f"{item.kind}_deleted")
    return Planned(item, "remove" if is_removed else None, old, None, "", reason if is_removed else None)


def _find_ending(old: Record | None, new: Record) -> EndReason | None:
    if isinstance(old, User) and isinstance(new, User):
        return find_user_narrowing(old, new)
    if isinstance(old, Client) and isinstance(new, Client):
        return "client_changed" if find_narrowing(old, new) else None
    if isinstance(old, IdentityProvider) and isinstance(new, IdentityProvider):
        return None if set(old.default_roles) <= set(new.default_roles) else "role_removed"
    return None
