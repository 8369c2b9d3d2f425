"""Security events under stable names. Each is in a structured log line; rare ones also go to the stream in Redis.

No field ever holds a token, code, secret, password or hash. A typed name is recorded only if it is known to be a name,
since people type passwords into the wrong field. `session` is the digest under which Redis stores a session.

Clauses: SPEC §6, RFC 6819 §5.1.3
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from logging import INFO, WARNING
from typing import Any, Final, Protocol

import msgspec

from service.observability.logs import EventLog, find_trace_id
from service.protocol.errors import NamedUser

Fields = dict[str, Any]
"""The fields of an event by their names. A field whose value is unknown is left out.

docs/reference/events-and-logs.md lists the fields of each event, and tests compare the log with it. `reason` is a fixed
word. `issued_before` is a time by ISO 8601. `actor` is the person at the console, or the program that acted instead: a
client if the `reason` is `client`. `count` is the number of objects concerned. In an entry of a stream, `repeats` is
the number of events that the entry stands for. `trace_id` is added to any event that a request with a trace causes.
"""

GROUPS: Final = ("users", "operators", "programs", "unauthenticated")
"""Who can cause an event: users, operators, clients and identity providers, or any caller. Each has its own stream."""

_REFUSED_LOGINS: Final = frozenset({"login_failed", "login_throttled"})
"""Events that may name a user, and that anybody can cause who knows the name."""

_LOG_ONLY: Final = frozenset(
    {
        "code_issued",
        "consent_denied",
        "tokens_issued",
        "tokens_refreshed",
        "refresh_token_repeated",
        "login_succeeded",
        "signed_out",
        "nothing_revoked",
        "events_lost",
    }
)
"""Events that do not go to a stream. `events_lost` is added there by the audit stream itself."""

VITAL: Final = frozenset(
    {
        "client_deleted",
        "client_disabled",
        "code_replayed",
        "password_changed",
        "provider_logout",
        "refresh_token_replayed",
        "replay_pattern",
        "revoke_all",
        "revoke_all_by_cli",
        "user_deleted",
        "user_disabled",
        "user_renamed",
        "user_password_set",
    }
)
"""Events that tell of a theft, or that rights have ended. Any number of users or clients have entries of their own."""

_WARNINGS: Final = frozenset(
    {
        "refresh_token_replayed",
        "refresh_token_misused",
        "lost_generations_recovered",
        "code_replayed",
        "code_misused",
        "login_failed",
        "login_throttled",
        "pages_throttled",
        "client_authentication_failed",
        "client_throttled",
        "events_lost",
    }
)


def get_level(event: str) -> int:
    return WARNING if event in _WARNINGS else INFO


def goes_to_stream(event: str) -> bool:
    return event not in _LOG_ONLY


def get_group(event: str, fields: Fields) -> str:
    """Return the group that caused the event. Only requests have an address, so an operator's event has none."""
    if "actor" in fields and "address" not in fields:
        return "operators"
    if event == "provider_logout" or fields.get("reason") == "client":
        return "programs"
    return "users" if "username" in fields and event not in _REFUSED_LOGINS else "unauthenticated"


def name_user(user: NamedUser) -> Fields:
    """Return the fields by which an event names a user."""
    return {"username": user.username, "realm": user.realm, "sub": user.subject}


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
    audit_log.write(get_level(event), event, fields)


def stream_event(event: str, fields: Fields) -> Fields:
    """Hand the event to the stream, unless it is only logged. Returns the fields whose value is known."""
    known = {name: value for name, value in fields.items() if value != ""}
    audit_stream = _audit_stream.get()
    if audit_stream is not None and goes_to_stream(event):
        trace_id = find_trace_id()
        audit_stream.take(event, known if trace_id is None else {**known, "trace_id": trace_id})
    return known


def make_event(event: str, **fields: Any) -> bytes:
    """Return an entry of the stream as JSON without a line end. Its time is in the id that the stream assigns."""
    return msgspec.json.encode({"event": event, **fields})
