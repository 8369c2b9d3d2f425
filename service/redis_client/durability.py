"""How durable a change is to be before it is answered: an operator's choice, without anything of Redis itself."""

from __future__ import annotations

from typing import Literal

Durability = Literal["memory", "replica", "disk"]
"""`memory`: wait for nothing; `replica`: for one replica; `disk`: for the append-only file of the master."""
