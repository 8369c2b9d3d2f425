"""Security events under stable names. Each is in a structured log line; rare ones also go to the stream in Redis.

No field ever holds a token, code, secret, password or hash. A typed name is recorded only if it is known to be a name,
since people type passwords into the wrong field. `family` is the digest under which Redis stores a session.

Clauses: SPEC §6, RFC 6819 §5.1.3
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from logging import INFO, WARNING
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from service.observability.logs import EventLog, find_trace_id

Fields = dict[str, Any]
"""The fields of an event by their names. A field whose value is unknown is left out.

docs/operations/monitoring.md lists the fields of each event, and tests compare the log with it. `reason` is a fixed
word. `issued_before` is a time by ISO 8601. `actor` is the person at the console, or the program that acted instead.
`count` is the number of objects concerned. In an entry of the stream without other fields, `count` is the number of
further events of that name. `trace_id` is added to any event that a request with a trace causes.
"""


class EventKind(NamedTuple):
    """The log level of an event, and its limit per worker and minute in the stream.

    After `entries_a_minute` entries of an event, the stream gets the first one of the minute about each user or client.
    The others are counted in one entry. If the limit is 0, the event does not go to the stream.
    """

    level: int
    entries_a_minute: int


LOG_ONLY: Final = 0
LIMIT_10: Final = 10
"""The limit of events that any caller can cause at will. A flood must not displace other events from the stream."""
LIMIT_60: Final = 60
"""The limit of events of normal use, such as a revocation at logout, and of replays, which a user can stage alone."""
LIMIT_600: Final = 600
"""The limit of all other events, which is a bound for faults only."""

_OTHER: Final = EventKind(INFO, LIMIT_600)
_KINDS: Final[Mapping[str, EventKind]] = {
    "code_issued": EventKind(INFO, LOG_ONLY),
    "consent_denied": EventKind(INFO, LOG_ONLY),
    "tokens_issued": EventKind(INFO, LOG_ONLY),
    "tokens_refreshed": EventKind(INFO, LOG_ONLY),
    "refresh_token_repeated": EventKind(INFO, LOG_ONLY),
    "replay_pattern": EventKind(INFO, LIMIT_60),
    "refresh_token_replayed": EventKind(WARNING, LIMIT_60),
    "refresh_token_misused": EventKind(WARNING, LIMIT_10),
    "lost_generations_recovered": EventKind(WARNING, LIMIT_600),
    "code_replayed": EventKind(WARNING, LIMIT_60),
    "code_misused": EventKind(WARNING, LIMIT_10),
    "access_token_revoked": EventKind(INFO, LIMIT_60),
    "refresh_token_revoked": EventKind(INFO, LIMIT_60),
    "password_changed": EventKind(INFO, LIMIT_60),
    "session_ended": EventKind(INFO, LIMIT_60),
    "revoke_all": EventKind(INFO, LIMIT_60),
    "login_succeeded": EventKind(INFO, LOG_ONLY),
    "login_failed": EventKind(WARNING, LIMIT_10),
    "login_throttled": EventKind(WARNING, LIMIT_10),
    "pages_throttled": EventKind(WARNING, LIMIT_10),
    "signed_out": EventKind(INFO, LOG_ONLY),
    "client_authentication_failed": EventKind(WARNING, LIMIT_10),
    "client_throttled": EventKind(WARNING, LIMIT_10),
    "events_lost": EventKind(WARNING, LOG_ONLY),
}


def get_kind(event: str) -> EventKind:
    """Return the kind of an event. Changes by a seed or at the console are events of the default kind."""
    return _KINDS.get(event, _OTHER)


class EventSink(Protocol):
    """A destination of events in addition to the log. `take` neither waits nor fails."""

    def take(self, event: str, fields: Fields) -> None: ...


audit_log = EventLog("service.audit")
_audit_stream: ContextVar[EventSink | None] = ContextVar("audit_stream", default=None)


def use_audit_stream(audit_stream: EventSink) -> None:
    """Send events of this task, and of the tasks that it starts from now on, to this stream as well."""
    _audit_stream.set(audit_stream)


def record_event(event: str, **fields: Any) -> None:
    """Log an event at once on a line of its own, and hand it to the stream. Does not wait.

    The events of a request are recorded by `record_request_event`, so that the line of the request carries them.
    """
    log_event(event, stream_event(event, fields))


def log_event(event: str, fields: Mapping[str, object]) -> None:
    audit_log.write(get_kind(event).level, event, fields)


def stream_event(event: str, fields: Fields) -> Fields:
    """Hand the event to the stream, unless its kind is only logged. Returns the fields whose value is known."""
    known = {name: value for name, value in fields.items() if value != ""}
    audit_stream = _audit_stream.get()
    if get_kind(event).entries_a_minute and audit_stream is not None:
        trace_id = find_trace_id()
        audit_stream.take(event, known if trace_id is None else {**known, "trace_id": trace_id})
    return known


def make_event(event: str, **fields: Any) -> bytes:
    """Return an entry of the stream as JSON without a line end. Its time is in the id that the stream assigns."""
    return msgspec.json.encode({"event": event, **fields})
