"""Texts of times, spans and sizes at the console."""

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


def format_span(ms: int) -> str:
    """Return the span in its two greatest units: 3 d 4 h, 12 min 5 s, 0.4 s."""
    if ms < 10_000:
        return f"{ms / 1000:g} s"
    parts: list[str] = []
    seconds = ms // 1000
    for name, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count} {name}" if count else "")
    return " ".join(part for part in parts[:2] if part)


def format_when(ms: int, now_ms: int) -> str:
    """Return the time, and how long ago or ahead it is."""
    span = format_span(abs(now_ms - ms))
    return f"{format_time(ms)} ({span} ago)" if ms <= now_ms else f"{format_time(ms)} (in {span})"


def format_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
