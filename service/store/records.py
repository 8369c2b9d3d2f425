"""Records as Python reads them: lines below a version, or JSON; what this code does not know it does not judge.

While two versions of the service run side by side, the older one meets records of the newer one. They are an outage to
it: neither dead nor alive, neither kept nor deleted. lua/records.lua has the lines of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import msgspec

from service.store.deadline import StoreUnavailable

__all__ = ["read_json", "read_lines", "reading"]

_LONGEST_VERSION: Final = 20

Record = TypeVar("Record")


def read_lines(record: bytes, kind: str, version: str, count: int) -> list[str]:
    """The lines below the version, so many of them; raises StoreUnavailable for any other version or form."""
    try:
        found, *lines = record.decode().split("\n")
    except (UnicodeDecodeError, AttributeError, TypeError):
        found, lines = "", []
    if found != version:
        raise StoreUnavailable(
            f"{kind} has a record of version {found[:_LONGEST_VERSION]!r}; this code knows version {version}"
        )
    if len(lines) != count:
        raise StoreUnavailable(f"the record of {kind} does not have the form of version {version}")
    return lines


def read_json(decode: Callable[[bytes | str], Record], record: bytes | str, kind: str) -> Record:
    """Members that are not known are left out; raises StoreUnavailable where one is missing or of another kind."""
    try:
        return decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise StoreUnavailable(f"the record of {kind} does not have a form that this code knows: {error}") from None


@contextmanager
def reading(kind: str) -> Iterator[None]:
    """For what is made of the lines, also as a decorator; raises StoreUnavailable where that cannot be done."""
    try:
        yield
    except (ValueError, TypeError, IndexError, AttributeError, RecursionError):
        raise StoreUnavailable(f"the record of {kind} does not have the form that this code knows") from None
