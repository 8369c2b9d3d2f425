"""Parsers for the records in Redis: hashes, lines after a version, or JSON.

While two versions of the service run side by side, the older one meets records of the newer one. It treats such a
record as an outage: it neither accepts nor rejects the record, and neither renews nor deletes it. The file
records.lua documents each field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from service.gateway.access_record import VERSION
from service.protocol.authorization import ConsentRequest
from service.protocol.authorization_code import AuthorizationCode, RedeemedCode
from service.protocol.client import AUTHORIZATION_CODE, PASSWORD
from service.redis_client.deadline import StoreUnavailable

_ACCESS_FIELD: Final = re.compile(r"[ap]\d+")
_DIGEST_WIDTH: Final = 22
_read_request: Final = msgspec.json.Decoder(ConsentRequest).decode
_GRANT_TYPES: Final = {"p": PASSWORD, "a": AUTHORIZATION_CODE}

Record = TypeVar("Record")


class FamilyRecord(NamedTuple):
    """The record of one grant.

    `used_ms` is the time of the last refresh, or of the grant. Replays do not count. `access_digests` names all access
    tokens in the record, including expired ones.
    """

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
    used_ms: int
    access_digests: tuple[str, ...]

    @property
    def lives_until_ms(self) -> int:
        """The time when both the family and its last access token have ended."""
        return max(self.expires_ms, self.access_until_ms)


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


class Consent(NamedTuple):
    """An authorization request that waits for the user's answer, or has it.

    `login` is the login whose browser sessions may answer it.
    """

    created_ms: int
    expires_ms: int
    login: str
    subject: str
    answer: str
    consent_request: ConsentRequest
    sid: str

    @property
    def is_answered(self) -> bool:
        return self.answer != ""


class BrowserSessionRecord(NamedTuple):
    """The record of a login in one browser."""

    created_ms: int
    expires_ms: int
    subject: str
    realm: str
    username: str
    login: str
    name: str
    sid: str


def parse_family(fields: dict[bytes, bytes]) -> FamilyRecord:
    """Parse the fields of a family's hash. Raises StoreUnavailable for a record of another version or form."""
    kind = "a session"
    with reading(kind):
        field = {name.decode(): value.decode() for name, value in fields.items()}
        _check_version(field.get("v", "").partition(" ")[0], kind)
        created, _, grant_type, secret_used, subject = field["v"].split(" ")[1:]
        head, expires_in_ms, access_in_ms = map(int, field["h"].split(" ")[:3])
        created_ms = int(created)
        access = {name: text for name, text in field.items() if _ACCESS_FIELD.fullmatch(name)}
        used_in_ms = (int(text[_DIGEST_WIDTH:].split(":")[0]) for name, text in access.items() if name[0] == "a")
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
            used_ms=created_ms + max(used_in_ms, default=0),
            access_digests=tuple(text[:_DIGEST_WIDTH] for text in access.values()),
        )


def parse_tombstone(record: bytes) -> TombstoneRecord:
    return _parse(record, "a session that has ended", TombstoneRecord)


def parse_code(record: bytes) -> AuthorizationCode:
    return _parse(record, "an authorization code", AuthorizationCode)


def parse_redeemed(record: bytes) -> RedeemedCode:
    return _parse(record, "an exchanged code", RedeemedCode)


def parse_consent(record: bytes) -> Consent:
    return _parse(record, "a consent", Consent)


def parse_browser_session(record: bytes) -> BrowserSessionRecord:
    return _parse(record, "a browser session", BrowserSessionRecord)


def read_json(decode: Callable[[bytes | str], Record], record: bytes | str, kind: str) -> Record:
    """Decode JSON and ignore unknown members. Raises StoreUnavailable if a member is missing or has another type."""
    try:
        return decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise StoreUnavailable(f"the record of {kind} has a form that this version does not know: {error}") from None


@contextmanager
def reading(kind: str) -> Iterator[None]:
    """Raise StoreUnavailable if the body fails to parse a record. Also works as a decorator."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise StoreUnavailable(f"the record of {kind} has a form that this version does not know") from None


def _parse_optional(text: str) -> int | None:
    return int(text) if text else None


def _check_version(found: str, kind: str) -> None:
    if found != VERSION:
        raise StoreUnavailable(f"{kind} has a record of version {found[:20]!r}; this service knows version {VERSION}")


def _parse_scope_field(text: str) -> str:
    """Return the scope. The words realm and role are left out of a long one."""
    return text if text.startswith("realm:") else "realm:" + text.replace(" ", " role:")


_CONVERSIONS: Final[dict[str, Callable[[str], Any]]] = {
    "created_ms": int,
    "expires_ms": int,
    "ended_ms": int,
    "head": int,
    "presented": _parse_optional,
    "spent_ms": _parse_optional,
    "code_challenge": lambda text: text or None,
    "consent_request": lambda text: read_json(_read_request, text, "a consent"),
}
"""Functions that convert the text of a line to its value, by field name. Fields without a function stay text."""


def _parse(record: bytes, kind: str, form: Callable[..., Record]) -> Record:
    """Parse the lines after the version into the form's fields. Raises StoreUnavailable for another version or form."""
    names = tuple(form.__annotations__)
    with reading(kind):
        version, *lines = record.decode().split("\n")
        _check_version(version, kind)
        return form(**{name: _CONVERSIONS.get(name, str)(line) for name, line in zip(names, lines, strict=True)})
