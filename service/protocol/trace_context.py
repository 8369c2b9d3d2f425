"""The header `traceparent`, which names the trace that a request belongs to.

Clauses: W3C Trace Context §3.2.2 (version 00), §3.2.4 (later versions)
"""

from __future__ import annotations

import re
from typing import Final

_VERSION_00_BYTES: Final = 55
_FIELDS: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""Version, trace id, parent id and flags. Version `ff` and ids of zeros only are invalid."""


def parse_traceparent(value: bytes) -> str | None:
    """Return the trace id, 32 hexadecimal digits in lower case, or None if the value of the header is invalid.

    Version 00 has exactly 55 bytes. A later version may append fields behind a dash, which are not read.
    """
    found = _FIELDS.match(value)
    if found is None:
        return None
    is_longer = len(value) > _VERSION_00_BYTES
    if is_longer and (value.startswith(b"00") or value[_VERSION_00_BYTES] != ord("-")):
        return None
    return found[1].decode()
