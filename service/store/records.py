"""Parsers for the records in Redis: hashes, lines after a version, or JSON.

While two versions of the service run side by side, the older one meets records of the newer one. It treats such a
record as an outage: it neither accepts nor rejects the record, and neither renews nor deletes it. The file
lua/shared/records.lua documents each field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from service.gateway.access_record import VERSION
from service.protocol.authorization_code import RedeemedCode
from service.protocol.client import AUTHORIZATION_CODE, PASSWORD
from service.redis_client.deadline import StoreUnavailable

_MAX_VERSION_CHARACTERS: Final = 20
_ACCESS_FIELD: Final = re.compile(r"a\d+")
_SPENT_FIELD: Final = re.compile(r"s\d+")
_REPLAY_FIELD: Final = re.compile(r"p(\d+)")
_DIGEST_WIDTH: Final = 22
_GRANT_TYPES: Final = {"p": PASSWORD, "a": AUTHORIZATION_CODE}

Record = TypeVar("Record")


class AccessEntry(NamedTuple):
    """An access token of a family. `ms` is its time of issue, or its expiry if it was issued to a replay."""

    digest: str
    ms: int
    generation: int


class SpentEntry(NamedTuple):
    """A range of spent generations that share one time. `ms` is when the last of them was spent."""

    first: int
    last: int
    ms: int


class FamilyRecord(NamedTuple):
    """The record of one grant. `access` and `spent` are sorted by generation."""

    head: int
    created_ms: int
    expires_ms: int
    access_until_ms: int
    subject: str
    client_id: str
    username: str
    scope: str
    grant_type: str
    secret_used: bool
    floor: int
    access: tuple[AccessEntry, ...]
    spent: tuple[SpentEntry, ...]
    replayed: tuple[AccessEntry, ...]
    streak: str
    replays: str

    @property
    def used_ms(self) -> int:
        """The time of the last refresh, or of the grant. Replays do not count."""
        return self.access[-1].ms if self.access else self.created_ms

    @property
    def lives_until_ms(self) -> int:
        """The time when both the family and its last access token have ended."""
        return max(self.expires_ms, self.access_until_ms)

    @property
    def access_digests(self) -> list[str]:
        """The digests of all access tokens in the record, including expired ones."""
        return [entry.digest for entry in (*self.access, *self.replayed)]

    def find_spent_ms(self, generation: int) -> int | None:
        """Return when the generation was spent, by the rule of spend_refresh_token.lua, or None if too long ago."""
        if generation >= self.floor:
            return next((entry.ms for entry in self.access if generation <= entry.generation), None)
        return max((entry.ms for entry in self.spent if entry.first <= generation <= entry.last), default=None)


class TombstoneRecord(NamedTuple):
    """The record of a family that ended before it expired."""

    ended_ms: int
    reason: str
    head: int
    presented: int | None
    spent_ms: int | None
    created_ms: int
    client_id: str
    subject: str
    username: str
    scope: str


class CodeRecord(NamedTuple):
    """The record of an authorization code that is not exchanged yet."""

    created_ms: int
    expires_ms: int
    subject: str
    client_id: str
    redirect_uri: str
    code_challenge: str | None
    username: str
    scope: str


class ConsentRecord(NamedTuple):
    """The record of an authorization request that waits for the user's answer, or has it. `request` is JSON."""

    created_ms: int
    expires_ms: int
    login: str
    subject: str
    answer: str
    request: str


class BrowserSessionRecord(NamedTuple):
    """The record of a login in one browser."""

    created_ms: int
    expires_ms: int
    subject: str
    realm: str
    username: str
    login: str
    name: str


def parse_family(fields: dict[bytes, bytes]) -> FamilyRecord:
    """Parse the fields of a family's hash. Raises StoreUnavailable for a record of another version or form."""
    kind = "a session"
    with reading(kind):
        field = {name.decode(): value.decode() for name, value in fields.items()}
        _check_version(field.get("v", "").partition(" ")[0], kind)
        created, _, grant_type, secret_used, subject = field["v"].split(" ")[1:]
        head, expires_in_ms, access_in_ms, floor = map(int, field["h"].split(" ")[:4])
        created_ms = int(created)
        access = (
            _parse_access_entry(text, created_ms) for name, text in field.items() if _ACCESS_FIELD.fullmatch(name)
        )
        spent = (_parse_spent_entry(text) for name, text in field.items() if _SPENT_FIELD.fullmatch(name))
        replayed = sorted((int(match[1]), match[0]) for match in map(_REPLAY_FIELD.fullmatch, field) if match)
        return FamilyRecord(
            head=head,
            created_ms=created_ms,
            expires_ms=created_ms + expires_in_ms,
            access_until_ms=created_ms + access_in_ms,
            subject=subject,
            client_id=field["c"],
            username=field["u"],
            scope=_parse_scope_field(field["r"]),
            grant_type=_GRANT_TYPES[grant_type],
            secret_used=secret_used == "1",
            floor=floor,
            access=tuple(sorted(access, key=lambda entry: entry.generation)),
            spent=tuple(sorted(spent)),
            replayed=tuple(_parse_access_entry(field[name], created_ms) for _, name in replayed),
            streak=field.get("k", ""),
            replays=field.get("n", ""),
        )


def parse_tombstone(record: bytes) -> TombstoneRecord:
    return _parse(record, "a session that has ended", TombstoneRecord)


def parse_code(record: bytes) -> CodeRecord:
    return _parse(record, "an authorization code", CodeRecord)


def parse_redeemed(record: bytes) -> RedeemedCode:
    return _parse(record, "an exchanged code", RedeemedCode)


def parse_consent(record: bytes) -> ConsentRecord:
    return _parse(record, "a consent", ConsentRecord)


def parse_browser_session(record: bytes) -> BrowserSessionRecord:
    return _parse(record, "a browser session", BrowserSessionRecord)


def read_json(decode: Callable[[bytes | str], Record], record: bytes | str, kind: str) -> Record:
    """Decode JSON and ignore unknown members. Raises StoreUnavailable if a member is missing or has another type."""
    try:
        return decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise StoreUnavailable(f"the record of {kind} does not have a form that this code knows: {error}") from None


@contextmanager
def reading(kind: str) -> Iterator[None]:
    """Raise StoreUnavailable if the body fails to parse a record. Also works as a decorator."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise StoreUnavailable(f"the record of {kind} does not have the form that this code knows") from None


def _parse_optional(text: str) -> int | None:
    return int(text) if text else None


def _check_version(found: str, kind: str) -> None:
    if found != VERSION:
        raise StoreUnavailable(
            f"{kind} has a record of version {found[:_MAX_VERSION_CHARACTERS]!r}; this code knows version {VERSION}"
        )


def _parse_scope_field(text: str) -> str:
    """Return the scope. The words realm and role are left out of a long one."""
    return text if text.startswith("realm:") else "realm:" + text.replace(" ", " role:")


def _parse_access_entry(text: str, created_ms: int) -> AccessEntry:
    digest, (ms, generation) = text[:_DIGEST_WIDTH], text[_DIGEST_WIDTH:].split(":")
    return AccessEntry(digest, created_ms + int(ms), int(generation))


def _parse_spent_entry(text: str) -> SpentEntry:
    first, last, ms = text.split(":")
    return SpentEntry(int(first), int(last), int(ms))


_CONVERSIONS: Final[dict[str, Callable[[str], Any]]] = {
    "created_ms": int,
    "expires_ms": int,
    "ended_ms": int,
    "head": int,
    "presented": _parse_optional,
    "spent_ms": _parse_optional,
    "code_challenge": lambda text: text or None,
}
"""Functions that convert the text of a line to its value, by field name. Fields without a function stay text."""


def _parse(record: bytes, kind: str, form: Callable[..., Record]) -> Record:
    """Parse the lines after the version into their NamedTuple. Raises StoreUnavailable for another version or form."""
    names: tuple[str, ...] = form._fields  # type: ignore[attr-defined] # each form is a NamedTuple
    try:
        version, *lines = record.decode().split("\n")
    except (UnicodeDecodeError, AttributeError, TypeError):
        version, lines = "", []
    _check_version(version, kind)
    if len(lines) != len(names):
        raise StoreUnavailable(f"the record of {kind} does not have the form of version {VERSION}")
    with reading(kind):
        return form(*(_CONVERSIONS.get(name, str)(line) for name, line in zip(names, lines, strict=True)))
