"""The trace that the caller's `traceparent` names: for log lines, security events, and requests to other systems.

The service only passes a trace on. It starts none, and exports no spans.

Clauses: W3C Trace Context §3.4 (a request to another system has a parent id of its own)
"""

from __future__ import annotations

import secrets
from contextvars import ContextVar
from typing import Final

from service.protocol.trace_context import TraceContext, format_traceparent

_PARENT_ID_BYTES: Final = 8

_trace: ContextVar[TraceContext | None] = ContextVar("trace", default=None)


def use_trace(trace: TraceContext | None) -> None:
    """Set the trace of the work in this task, and in the tasks that it starts from now on."""
    _trace.set(trace)


def find_trace_id() -> str | None:
    """Return the trace id of this task's request, or None if the request has no trace."""
    trace = _trace.get()
    return None if trace is None else trace.trace_id


def make_trace_headers() -> dict[str, str]:
    """Return the header of one request to another system, with a new parent id, or nothing without a trace.

    `tracestate` is not passed on, because the other system is another organisation's.
    """
    trace = _trace.get()
    if trace is None:
        return {}
    return {"traceparent": format_traceparent(trace, _make_parent_id())}


def _make_parent_id() -> str:
    """Return 16 random hexadecimal digits that are not all zero, which the standard does not allow."""
    return f"{secrets.randbelow(2 ** (8 * _PARENT_ID_BYTES) - 1) + 1:0{2 * _PARENT_ID_BYTES}x}"
