"""The setting that says how durable a change must be before it is answered. An operator chooses it."""

from __future__ import annotations

from typing import Literal

Durability = Literal["memory", "replica", "disk"]
"""`memory`: wait for nothing. `replica`: wait for one replica. `disk`: require the append-only file of the master."""
