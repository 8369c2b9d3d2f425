"""Parsers for the records in Redis: lines after a version, or JSON.

While two versions of the service run side by side, the older one meets records of the newer one. It treats such a
record as an outage: it neither accepts nor rejects the record, and neither renews nor deletes it, except
that a revokeAll of everything deletes codes, consents and browser sessions unread. The file
records.lua documents each field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from service.gateway.access_record import VERSION
from service.protocol.authorization import ConsentRequest
from service.protocol.authorization_code import AuthorizationCode, RedeemedCode
from service.protocol.client import AUTHORIZATION_CODE, PASSWORD
from service.protocol.scope import parse_realm
from service.redis_client.deadline import UnreadableRecord

_read_request: Final = msgspec.json.Decoder(ConsentRequest).decode
_read_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_GRANT_TYPES: Final = {"p": PASSWORD, "a": AUTHORIZATION_CODE}

Record = TypeVar("Record")


IssuedToken = tuple[int, str]
"""An access token in the record of a family: its time of issue since the grant, in ms, and its digest."""


class FamilyRecord(NamedTuple):
    """The record of one grant."""

    created_ms: int
    grant_type: str
    secret_used: bool
    user_digest: str
    subject: str
    client_id: str
    username: str
    scope: str
    browser_name: str
    sid: str
    expires_ms: int
    access_until_ms: int
    indexed_until_ms: int
    head: int
    oldest: int
    replayed: str
    tokens: tuple[IssuedToken, ...]
    replay_tokens: tuple[IssuedToken, ...]
    spent_times: tuple[int, ...]

    @property
    def used_ms(self) -> int:
        """The time of the last refresh, or of the grant. Replays do not count."""
        return self.created_ms + max((*self.spent_times, *(issued for issued, _ in self.tokens)), default=0)

    @property
    def realm(self) -> str:
        return parse_realm(self.scope)

    @property
    def access_digests(self) -> list[str]:
        return [digest for _, digest in (*self.tokens, *self.replay_tokens)]

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

    `login` is the login whose browser sessions may answer it. `answer` is empty without an answer.
    """

    created_ms: int
    expires_ms: int
    login: str
    user_digest: str
    answer: str
    consent_request: ConsentRequest
    sid: str


class BrowserSessionRecord(NamedTuple):
    """The record of a login in one browser."""

    created_ms: int
    expires_ms: int
    user_digest: str
    subject: str
    realm: str
    username: str
    login: str
    name: str
    browser_name: str
    used_ms: int
    sid: str


@contextmanager
def reading(kind: str) -> Iterator[None]:
    """Raise UnreadableRecord if the body fails to parse a record. Also works as a decorator."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise UnreadableRecord(f"cannot read the record of {kind}: unknown format") from None


@reading("a revokeAll")
def parse_mark(mark: bytes | None) -> int:
    """Return the time (ms) of a mark, or 0 if there is none."""
    return int(mark or 0)


def read_json(decode: Callable[[bytes | str], Record], record: bytes | str, kind: str) -> Record:
    """Decode JSON and ignore unknown members. Raises UnreadableRecord if a member is missing or has another type."""
    try:
        return decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise UnreadableRecord(f"cannot read the record of {kind}: {error}") from None


def write_json(record: msgspec.Struct, stored: bytes | None) -> str:
    """Encode a record, with the members of the record in Redis until now that this version does not know."""
    if stored is None:
        return msgspec.json.encode(record).decode()
    known, found = record.__struct_encode_fields__, read_json(_read_members, stored, "the registry")
    unknown = {name: value for name, value in found.items() if name not in known}
    return msgspec.json.encode(msgspec.to_builtins(record) | unknown).decode()


def _parse_optional(text: str) -> int | None:
    return int(text) if text else None


def _parse_tokens(text: str) -> tuple[IssuedToken, ...]:
    """Parse the number of tokens and the tokens, each after a space."""
    count, *entries = text.split(" ")
    if int(count) != len(entries):
        raise ValueError(count)
    fields = (entry.split(":") for entry in entries)
    return tuple((int(issued_in_ms), digest) for _, issued_in_ms, _, digest in fields)


_CONVERSIONS: Final[dict[str, Callable[[str], Any]]] = {
    "created_ms": int,
    "expires_ms": int,
    "used_ms": int,
    "ended_ms": int,
    "access_until_ms": int,
    "indexed_until_ms": int,
    "head": int,
    "oldest": int,
    "grant_type": _GRANT_TYPES.__getitem__,
    "secret_used": lambda text: text == "1",
    "tokens": _parse_tokens,
    "replay_tokens": _parse_tokens,
    "spent_times": lambda text: tuple(int(entry.split(":")[1]) for entry in text.split()),
    "presented": _parse_optional,
    "spent_ms": _parse_optional,
    "code_challenge": lambda text: text or None,
    "consent_request": lambda text: read_json(_read_request, text, "a consent"),
}
"""Functions that convert the text of a line to its value, by field name. Fields without a function stay text."""


def _parse(form: Callable[..., Record], kind: str, record: bytes) -> Record:
    """Parse the lines after the version into the form's fields, and ignore further lines.

    Raises UnreadableRecord for another version or form.
    """
    names = tuple(form.__annotations__)
    with reading(kind):
        version, *lines = record.decode().split("\n")
        if version != VERSION:
            raise UnreadableRecord(
                f"the record of {kind} has version {version[:20]!r}; this release reads version {VERSION}"
            )
        known = zip(names, lines[: len(names)], strict=True)
        return form(**{name: _CONVERSIONS.get(name, str)(line) for name, line in known})


parse_family: Final = partial(_parse, FamilyRecord, "a session")
parse_tombstone: Final = partial(_parse, TombstoneRecord, "a session that has ended")
parse_code: Final = partial(_parse, AuthorizationCode, "an authorization code")
parse_redeemed: Final = partial(_parse, RedeemedCode, "an exchanged code")
parse_consent: Final = partial(_parse, Consent, "a consent")
parse_browser_session: Final = partial(_parse, BrowserSessionRecord, "a browser session")
