"""The header `traceparent`, which names the trace that a request belongs to.

Clauses: W3C Trace Context §3.2.2 (version 00), §3.2.4 (later versions)
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_SAMPLED: Final = 0x01
_RANDOM: Final = 0x02
_KNOWN_FLAGS: Final = _SAMPLED | _RANDOM
"""The flags that the standard defines. All others must be sent as zero."""

_VERSION_00_BYTES: Final = 55
_FIELDS: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})")
"""Version, trace id, parent id and flags. Version `ff` and ids of zeros only are invalid."""


class TraceContext(NamedTuple):
    """The trace of a request. `trace_id` is 32 hexadecimal digits in lower case. `flags` are the known ones."""

    trace_id: str
    flags: int


def parse_traceparent(value: bytes) -> TraceContext | None:
    """Return the trace that the value of the header names, or None if the value is invalid.

    Version 00 has exactly 55 bytes. A later version may append fields behind a dash, which are not read.
    """
    found = _FIELDS.match(value)
    if found is None:
        return None
    is_longer = len(value) > _VERSION_00_BYTES
    if is_longer and (value.startswith(b"00") or value[_VERSION_00_BYTES] != ord("-")):
        return None
    return TraceContext(found[1].decode(), int(found[2], 16) & _KNOWN_FLAGS)


def format_traceparent(trace: TraceContext, parent_id: str) -> str:
    """Return the header for a request to another system. `parent_id`, 16 hexadecimal digits, names that request."""
    return f"00-{trace.trace_id}-{parent_id}-{trace.flags:02x}"
