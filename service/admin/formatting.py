"""Texts of times at the console."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

from service.config.parsers import parse_duration_or_zero_ms


def parse_time_ms(text: str) -> int:
    """Parse a time in ISO 8601 and return milliseconds since 1970. Without an offset the time is in UTC.

    Raises ValueError with what was expected. A year before 2000 counts as a typing error. The store would take a time
    before 1970 for no time at all.
    """
    expected = "a time by ISO 8601 such as 2026-11-21T08:30:00Z"
    try:
        time = datetime.fromisoformat(text.strip())
        aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        in_utc = aware.astimezone(UTC)
    except (ValueError, OverflowError):  # the last hours of the year 9999 may be out of range in UTC
        raise ValueError(expected) from None
    if in_utc.year < 2000:
        raise ValueError(f"{expected}, in this century")
    return int(in_utc.timestamp() * 1000)


def read_since_ms(text: str) -> int:
    """Parse a time in ISO 8601, or a span before now such as 90m, which is returned as a negative number.

    Raises ValueError with what was expected.
    """
    with suppress(ValueError):
        return -parse_duration_or_zero_ms(text)
    try:
        return parse_time_ms(text)
    except ValueError as expected:
        raise ValueError(f"{expected}, or a span such as 90m or 24h") from None


def format_time(ms: int) -> str:
    """Return the time in UTC, to the second: 2026-11-21T08:30:00Z."""
    return datetime.fromtimestamp(ms // 1000, UTC).isoformat().replace("+00:00", "Z")
