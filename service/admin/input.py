"""Secrets that the console reads from a terminal, a file or a pipe, and times that its arguments name."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC, datetime

import click

from service.admin.output import WrongInput, ending_at_ctrl_c
from service.config.parsers import parse_duration_or_zero_ms


def read_secret(prompt: str, file: str | None, *, what: str = "secret", twice: bool = False) -> str:
    """Read a secret of one line: from the file, from the terminal without echo, or else from stdin.

    `what` names the secret in messages.
    """
    if file is None and sys.stdin.isatty():
        with ending_at_ctrl_c():
            return str(click.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True))
    place = "stdin" if file in (None, "-") else file
    try:
        with ending_at_ctrl_c(), click.open_file(file or "-", encoding="utf-8-sig") as opened:
            lines: list[str] = opened.read().splitlines()
    except OSError as error:
        raise WrongInput(f"{place} cannot be read: {error.strerror}") from None
    except UnicodeError:
        raise WrongInput(f"{place}: expected text in UTF-8") from None
    if len(lines) != 1 or not lines[0]:
        raise WrongInput(f"{place}: expected the {what} on a single line")
    return lines[0]


def parse_time_ms(text: str) -> int:
    """Parse a time in ISO 8601 and return milliseconds since 1970. Without an offset the time is in UTC.

    Raises ValueError with what was expected. A year before 2000 counts as a typing error. The store would take a time
    before 1970 for no time at all.
    """
    expected = "an ISO 8601 time such as 2026-11-21T08:30:00Z"
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
    """Parse an ISO 8601 time, or a duration until now such as 90m, which is returned as a negative number.

    Raises ValueError with what was expected.
    """
    with suppress(ValueError):
        return -parse_duration_or_zero_ms(text)
    try:
        return parse_time_ms(text)
    except ValueError as expected:
        raise ValueError(f"{expected}, or a duration such as 90m or 24h") from None
