"""What a record that this code cannot read is taken for: it cannot be judged, so it is an outage, never a refusal.

Such a record is another version's, or was damaged; the request that met it may find one that it can read tomorrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from service.store.connection import StoreUnavailable


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Also as a decorator. Raises StoreUnavailable, which says what could not be read, and repeats nothing of it."""
    try:
        yield
    except (ValueError, TypeError, IndexError, AttributeError, RecursionError):
        raise StoreUnavailable(f"{what} does not have the form that this code knows") from None
