"""The setting that says how durable a change must be before it is answered. An operator chooses it."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple


class Durability(NamedTuple):
    """The level, and with `replica` the least number of replicas, if the operator names one.

    `memory`: wait for nothing. `replica`: wait for every replica that could be promoted, as far as the topology knows
    them. `disk`: require the append-only file of the master.
    """

    level: Literal["memory", "replica", "disk"]
    min_replicas: int = 1

    def __str__(self) -> str:
        return self.level if self.min_replicas == 1 else f"{self.level}:{self.min_replicas}"


MEMORY: Final = Durability("memory")
REPLICA: Final = Durability("replica")
DISK: Final = Durability("disk")
