"""The trace id of the caller's `traceparent`, for log lines and security events.

The service starts no trace, passes none on, and exports no spans.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

_trace_id: Final[ContextVar[str | None]] = ContextVar("trace_id", default=None)


def use_trace_id(trace_id: str | None) -> None:
    """Set the trace id of the work in this task, and in the tasks that it starts from now on."""
    _trace_id.set(trace_id)


def find_trace_id() -> str | None:
    """Return the trace id of this task's request, or None if the request has no trace."""
    return _trace_id.get()
