"""How often a worker looks for garbage: what is there at the start stays, and most that requests make goes by itself.

The collector would look through thousands of modules, classes and settings again and again, and through what the
requests under way have in their hands.

Clauses: none of the standards; SPEC is silent.
"""

from __future__ import annotations

import gc
from typing import Final

NEW_OBJECTS: Final = 10_000
"""So many more than before are looked through; the interpreter's own number is 700."""


def freeze_startup_objects() -> None:
    """After the start, and before the first request."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
