"""The digests that Redis keeps of the fields of each seed entry, as they were last applied.

They tell which fields of an entry were edited since. Only these fields are written, so a change that was made elsewhere
stays until the same field changes in the file. The text for one entry in Redis is:

    "=" or "+", the id of the secret key (4 characters), and for each field a letter and a digest (8 characters)

"+" means that an interrupted seed may have left the entry without its record, so the record may be added. A capital
letter means that a seed began to write the field: the record may or may not have it. A field with its default value has
no digest, or NO_DIGEST while it is being written. Earlier versions stored one digest of the whole entry, or UNDER_WAY.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from service.crypto.keyring import KEY_ID_CHARACTERS, Keyring
from service.registry.seed_file.schema import ClientEntry, RealmEntry, UserEntry

UNDER_WAY: Final = "under way"
NO_DIGEST: Final = "-" * 8

LETTERS: Final[Mapping[str, str]] = {
    "authorization_endpoint": "a",
    "client_id": "c",
    "client_name": "n",
    "client_secret": "s",
    "client_secret_hash": "s",
    "default_roles": "l",
    "default_scope": "f",
    "disabled": "d",
    "grant_types": "g",
    "introspect": "t",
    "introspection_endpoint": "q",
    "issuer": "i",
    "jwks_uri": "j",
    "name": "n",
    "password": "p",
    "password_hash": "p",
    "realm": "x",
    "redirect_uris": "u",
    "require_pkce": "k",
    "roles": "r",
    "scope": "o",
    "token_endpoint": "e",
    "trust_email": "m",
    "userinfo_endpoint": "y",
    "username": "w",
    "username_claim": "z",
}
"""The letter of each field of an entry. A secret and its hash are one field."""

DISABLED: Final = LETTERS["disabled"]
PASSWORD: Final = LETTERS["password"]
CLIENT_SECRET: Final = LETTERS["client_secret"]

_ALL_LETTERS: Final = frozenset(LETTERS.values())
_HEAD_CHARACTERS: Final = 1 + KEY_ID_CHARACTERS

_Entry = RealmEntry | ClientEntry | UserEntry


class Comparison(NamedTuple):
    """An entry compared with what was last applied. `changed` holds the letters of the fields that must be written.

    `may_add` is True if the record may be added: the entry is new, or an interrupted seed may have left it without its
    record. Otherwise a missing record was deleted elsewhere and stays deleted. `is_pending` is True if an interrupted
    seed may have written a part. `is_unclear` is True if it is unknown which fields were edited: only a digest of the
    whole entry is known, and it differs, or the digests were made with a key that is gone. `stored` is the text in
    Redis, and `applied` the text to store once the entry is in force.
    """

    stored: str | None
    applied: str
    changed: frozenset[str] = frozenset()
    may_add: bool = False
    is_pending: bool = False
    is_unclear: bool = False

    @property
    def concerns_record(self) -> bool:
        """True if the record may have to be written, even without `force`."""
        return bool(self.changed) or self.may_add or self.is_unclear

    def mark_pending(self, letters: Collection[str], *, is_missing: bool) -> str:
        """Return the text to store before these fields of the record are written.

        If the write is interrupted, the next seed writes them again, also the seed of before.
        """
        digests = _split_digests(self.applied)
        for letter in letters:
            digests[letter.upper()] = digests.pop(letter, NO_DIGEST)
        sign = "+" if self.may_add or is_missing else "="
        return sign + self.applied[1:_HEAD_CHARACTERS] + _join(digests)


def compare_entry(keyring: Keyring, name: str, entry: _Entry, stored: str | None) -> Comparison:
    """Compare an entry with the text that Redis has for it, or with None. `name` binds the digests to the entry."""
    texts = _list_texts(name, entry)
    applied = "=" + keyring.key_id + _join({letter: keyring.digest_seed_field(texts[letter]) for letter in texts})
    if stored == applied:
        return Comparison(stored, applied)
    if stored is None:
        return Comparison(stored, applied, frozenset(texts), may_add=True)
    if stored == UNDER_WAY:
        letters = list_letters(entry) - ({DISABLED} - texts.keys())
        return Comparison(stored, applied, letters, may_add=True, is_pending=True)
    if stored[0] not in "=+":
        is_known = keyring.recognises_seed(stored, msgspec.json.encode(entry))
        return Comparison(stored, applied, is_unclear=not is_known)
    return _compare_fields(keyring, texts, Comparison(stored, applied, may_add=stored[0] == "+"))


def mark_removal(stored: str) -> str:
    """Return the text to store before the record of an entry is removed, so that a file with the entry restores it."""
    return "+" + stored[1:] if stored[0] in "=+" else UNDER_WAY


def settle_fields(stored: str, letters: Collection[str]) -> str:
    """Return the text to store after the console wrote the fields of these letters, or deleted or made the record.

    An interrupted seed does not write these fields again. A text of an earlier version cannot be changed.
    """
    if stored[0] not in "=+":
        return stored
    settled = dict[str, str]()
    for letter, digest in _split_digests(stored).items():
        if letter.lower() not in letters:
            settled[letter] = digest
        elif digest != NO_DIGEST:
            settled[letter.lower()] = digest
    return "=" + stored[1:_HEAD_CHARACTERS] + _join(settled)


def get_key_id(stored: str) -> str:
    """Return the id of the key that made the digests of an entry. A text of an earlier version begins with the id."""
    return stored.lstrip("=+")[:KEY_ID_CHARACTERS]


def list_letters(entry: _Entry) -> frozenset[str]:
    return frozenset(LETTERS[name] for name in entry.__struct_fields__)


def _compare_fields(keyring: Keyring, texts: Mapping[str, bytes], comparison: Comparison) -> Comparison:
    """Return the comparison with the changed fields.

    Digests of a key that is gone cannot be compared. Then changes that the console made since must stay. Otherwise,
    dropping a stolen key would enable a disabled user again. Fields that a later version stored stay as they are.
    """
    assert comparison.stored is not None
    key_id, digests = comparison.stored[1:_HEAD_CHARACTERS], _split_digests(comparison.stored)
    if not keyring.has_key(key_id):
        return comparison._replace(is_unclear=True)
    unknown = {letter: digest for letter, digest in digests.items() if letter.lower() not in _ALL_LETTERS}
    pending = {letter.lower() for letter in digests.keys() - unknown.keys() if letter.isupper()}
    changed = pending | (digests.keys() - unknown.keys() - texts.keys() - {letter.upper() for letter in pending})
    for letter, text in texts.items():
        digest = digests.get(letter)
        if digest is None or not keyring.recognises_seed_field(key_id, digest, text):
            changed.add(letter)
    if DISABLED not in texts:
        changed.discard(DISABLED)
    head, own = comparison.applied[:_HEAD_CHARACTERS], _split_digests(comparison.applied)
    applied = head + _join(own | unknown)
    return comparison._replace(applied=applied, changed=frozenset(changed), is_pending=bool(pending))


def _list_texts(name: str, entry: _Entry) -> dict[str, bytes]:
    """Return the text of each field that the entry has, by the field's letter. A default value is left out."""
    values: dict[str, object] = msgspec.to_builtins(entry)
    return {LETTERS[field]: msgspec.json.encode((name, field, value)) for field, value in values.items()}


def _split_digests(text: str) -> dict[str, str]:
    starts = range(_HEAD_CHARACTERS, len(text), 1 + len(NO_DIGEST))
    return {text[start]: text[start + 1 : start + 1 + len(NO_DIGEST)] for start in starts}


def _join(digests: Mapping[str, str]) -> str:
    return "".join(letter + digests[letter] for letter in sorted(digests))
