"""The trace id of the caller's header `traceparent`, which log lines and security events of the request carry.

The service starts no trace, exports no spans, and passes no trace on.

Clauses: W3C Trace Context §3.2 (the header traceparent)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Final

_TRACEPARENT: Final = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

_trace_id: ContextVar[str | None] = ContextVar("trace_id", default=None)


def use_trace(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Set the trace of the work in this task, and in the tasks that it starts from now on.

    A header that is malformed or repeated names no trace. A request without a trace clears the context variable, since
    the task of a pipelined request inherits the context of the request before it.
    """
    values = [value for name, value in headers if name == b"traceparent"]
    found = _TRACEPARENT.fullmatch(values[0]) if len(values) == 1 else None
    _trace_id.set(None if found is None else found[1].decode())


def find_trace_id() -> str | None:
    """Return the trace id of this task's request, or None if the request has no trace."""
    return _trace_id.get()
