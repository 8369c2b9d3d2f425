"""Security events under stable names. Each is a structured log line; rare ones also go to the stream in Redis.

No field ever holds a token, code, secret, password or hash. A typed name is recorded only if it is known to be a name,
since people type passwords into the wrong field. `family` is the digest under which Redis stores a session.

Clauses: SPEC §6, RFC 6819 §5.1.3
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from logging import INFO, WARNING
from typing import Final, NamedTuple, Protocol, TypedDict, Unpack

import msgspec

from service.observability.logs import EventLog
from service.observability.traces import find_trace_id


class Fields(TypedDict, total=False):
    """The fields of an event. A field whose value is unknown is left out.

    `reason` is a fixed word. `issued_before` is a time by ISO 8601. `actor` is the person at the console, or the
    program that acted instead. `count` is the number of objects concerned. In an entry of the stream without other
    fields, `count` is the number of further events of that name. `trace_id` is added by `record_event`
    to any event that a request with a trace causes.
    """

    client_id: str
    username: str
    realm: str
    family: str
    scope: str
    grant_type: str
    reason: str
    issued_before: str
    address: str
    actor: str
    count: int
    added: int
    updated: int
    removed: int
    trace_id: str


class EventKind(NamedTuple):
    """The log level of an event, its limit per worker and minute in the stream, and the fields that it may have.

    After `entries_a_minute` entries of an event, the stream gets the first one of the minute about each user or client.
    The others are counted in one entry. If the limit is 0, `record_event` does not send the event to the stream. The
    tests hold the fields; they are not checked here.
    """

    level: int
    entries_a_minute: int
    fields: tuple[str, ...]


LOG_ONLY: Final = 0
LIMIT_10: Final = 10
"""The limit of events that any caller can cause at will. A flood must not displace other events from the stream."""
LIMIT_60: Final = 60
"""The limit of events of normal use, such as a revocation at logout, and of replays, which a user can stage alone."""
LIMIT_600: Final = 600
"""The limit of all other events, which is a bound for faults only."""

_SESSION: Final = ("client_id", "username", "realm", "family", "address")
_SCOPE: Final = (*_SESSION, "scope")
_REGISTRY_REALM: Final = ("realm", "actor", "reason")
_REGISTRY_CLIENT: Final = ("client_id", "actor", "reason")
_REGISTRY_USER: Final = ("username", "realm", "actor", "reason")

KINDS: Final[Mapping[str, EventKind]] = {
    "code_issued": EventKind(INFO, LOG_ONLY, ("client_id", "username", "realm", "scope", "address")),
    "consent_denied": EventKind(INFO, LOG_ONLY, ("client_id", "username", "realm", "scope", "address")),
    "tokens_issued": EventKind(INFO, LOG_ONLY, (*_SCOPE, "grant_type")),
    "tokens_refreshed": EventKind(INFO, LOG_ONLY, _SCOPE),
    "refresh_token_repeated": EventKind(INFO, LOG_ONLY, _SCOPE),
    "replay_pattern": EventKind(INFO, LIMIT_60, _SCOPE),
    "refresh_token_replayed": EventKind(WARNING, LIMIT_60, ("client_id", "username", "family", "address")),
    "refresh_token_misused": EventKind(WARNING, LIMIT_10, ("client_id", "family", "reason", "address")),
    "lost_generations_recovered": EventKind(WARNING, LIMIT_600, _SCOPE),
    "code_replayed": EventKind(WARNING, LIMIT_60, ("client_id", "username", "family", "address")),
    "code_misused": EventKind(WARNING, LIMIT_10, ("client_id", "username", "realm", "reason", "address")),
    "access_token_revoked": EventKind(INFO, LIMIT_60, ("client_id", "username", "address")),
    "refresh_token_revoked": EventKind(INFO, LIMIT_60, ("client_id", "username", "family", "address")),
    "password_changed": EventKind(INFO, LIMIT_60, ("username", "realm", "address")),
    "session_ended": EventKind(INFO, LIMIT_60, _SESSION),
    "revoke_all": EventKind(INFO, LIMIT_60, ("username", "realm", "reason", "address")),
    "login_succeeded": EventKind(INFO, LOG_ONLY, ("client_id", "username", "realm", "address")),
    "login_failed": EventKind(WARNING, LIMIT_10, ("client_id", "username", "realm", "reason", "address")),
    "login_throttled": EventKind(WARNING, LIMIT_10, ("client_id", "realm", "reason", "address")),
    "pages_throttled": EventKind(WARNING, LIMIT_10, ("address",)),
    "signed_out": EventKind(INFO, LOG_ONLY, ("username", "realm", "address")),
    "client_authentication_failed": EventKind(WARNING, LIMIT_10, ("client_id", "reason", "address")),
    "client_throttled": EventKind(WARNING, LIMIT_10, ("client_id", "address")),
    "seed_applied": EventKind(INFO, LIMIT_600, ("added", "updated", "removed", "actor")),
    "realm_created": EventKind(INFO, LIMIT_600, _REGISTRY_REALM),
    "realm_updated": EventKind(INFO, LIMIT_600, _REGISTRY_REALM),
    "realm_deleted": EventKind(INFO, LIMIT_600, _REGISTRY_REALM),
    "client_created": EventKind(INFO, LIMIT_600, _REGISTRY_CLIENT),
    "client_updated": EventKind(INFO, LIMIT_600, _REGISTRY_CLIENT),
    "client_secret_rotated": EventKind(INFO, LIMIT_600, _REGISTRY_CLIENT),
    "client_made_public": EventKind(INFO, LIMIT_600, _REGISTRY_CLIENT),
    "client_disabled": EventKind(INFO, LIMIT_600, _REGISTRY_CLIENT),
    "client_enabled": EventKind(INFO, LIMIT_600, _REGISTRY_CLIENT),
    "client_deleted": EventKind(INFO, LIMIT_600, _REGISTRY_CLIENT),
    "user_created": EventKind(INFO, LIMIT_600, _REGISTRY_USER),
    "user_updated": EventKind(INFO, LIMIT_600, _REGISTRY_USER),
    "user_password_set": EventKind(INFO, LIMIT_600, _REGISTRY_USER),
    "user_disabled": EventKind(INFO, LIMIT_600, _REGISTRY_USER),
    "user_enabled": EventKind(INFO, LIMIT_600, _REGISTRY_USER),
    "user_unlocked": EventKind(INFO, LIMIT_600, _REGISTRY_USER),
    "user_deleted": EventKind(INFO, LIMIT_600, _REGISTRY_USER),
    "token_revoked_by_console": EventKind(INFO, LIMIT_600, ("client_id", "username", "realm", "family", "actor")),
    "revoke_all_by_console": EventKind(
        INFO, LIMIT_600, ("client_id", "username", "realm", "reason", "issued_before", "count", "actor")
    ),
    "events_lost": EventKind(WARNING, LOG_ONLY, ("count", "reason")),
}


class EventSink(Protocol):
    """A destination of events in addition to the log. `take` neither waits nor fails."""

    def take(self, event: str, fields: Fields) -> None: ...


_log = EventLog("service.audit")
_audit_stream: ContextVar[EventSink | None] = ContextVar("audit_stream", default=None)


def use_audit_stream(audit_stream: EventSink) -> None:
    """Send events of this task, and of the tasks that it starts from now on, to this stream as well."""
    _audit_stream.set(audit_stream)


def record_event(event: str, **fields: Unpack[Fields]) -> None:
    """Log one of KINDS at once, and hand it to the stream unless its kind is only logged. Does not wait."""
    known: Fields = {name: value for name, value in fields.items() if value != ""}  # type: ignore[assignment]
    kind = KINDS[event]
    _log.write(kind.level, event, known)
    audit_stream = _audit_stream.get()
    if kind.entries_a_minute and audit_stream is not None:
        trace_id = find_trace_id()
        audit_stream.take(event, known if trace_id is None else {**known, "trace_id": trace_id})


def make_event(event: str, **fields: Unpack[Fields]) -> bytes:
    """Return an entry of the stream as JSON without a line end. Its time is in the id that the stream assigns."""
    return msgspec.json.encode({"event": event, **fields})
