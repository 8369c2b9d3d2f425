"""Cluster slots, and waits for slots that move key by key (MIGRATE), whose keys lie on two nodes.

The node that owns a moving slot refuses a command if it does not have all of its keys. It answers TRYAGAIN if it has
some of them, and ASK if it has none. Redis 6.2 answers ASK in both cases. Either answer means that nothing ran, so the
command may be sent again until the slot has moved.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import time
from binascii import crc_hqx
from collections.abc import Sequence
from typing import Final, NamedTuple

from .deadline import StoreUnavailable

RETRY_DELAY_SECONDS: Final = 0.05
"""The mean pause between two attempts. It varies by half, so that callers do not send together."""

SLOTS: Final = 16384
"""The number of hash slots of a cluster."""

_RESERVE_SECONDS: Final = 0.1
"""Time that is kept back, so that the caller gets SlotIsMoving instead of a timeout."""

_SLOTS: Final = re.compile(
    r"(?P<first>[0-9]{1,5})(?:-(?P<last>[0-9]{1,5}))?|\[(?P<moving>[0-9]{1,5})-(?P<way>[<>])-\w+\]"
)


class SlotIsMoving(StoreUnavailable):
    """The slot did not arrive in time. The refused command changed nothing; earlier ones of the same work may have."""


async def pause_for_slot(refusal: BaseException, ends: float) -> None:
    """Wait before the next attempt. Raises SlotIsMoving if no attempt fits before `ends`, by the monotonic clock."""
    seconds = RETRY_DELAY_SECONDS * random.uniform(0.5, 1.5)
    if time.monotonic() + seconds > ends - _RESERVE_SECONDS:
        raise SlotIsMoving(f"a cluster slot is being migrated, or its migration was interrupted: {refusal}")
    await asyncio.sleep(seconds)


class NodeSlots(NamedTuple):
    """The slots that one master reports: those that it owns, and those that are leaving it or arriving."""

    node: str
    slots: frozenset[int]
    leaving: frozenset[int]
    arriving: frozenset[int]


def parse_own_slots(answer: bytes) -> NodeSlots:
    """Return the slots of the node that answered CLUSTER NODES, from the line about itself.

    Raises StoreUnavailable if there is no such line or it is malformed.

    Example of a line: `<id> 10.0.0.1:6379@16379 myself,master - 0 0 3 connected 0-92 94-5460 [93->-<id>]`.
    """
    for line in answer.decode(errors="replace").split("\n"):
        words = line.split()
        if len(words) >= 8 and "myself" in words[2].split(","):
            slots = [slot for word in words[8:] if (slot := _SLOTS.fullmatch(word))]
            if len(slots) < len(words[8:]):
                break
            own = [range(int(slot["first"]), int(slot["last"] or slot["first"]) + 1) for slot in slots if slot["first"]]
            leaving, arriving = (
                frozenset(int(slot["moving"]) for slot in slots if slot["way"] == way) for way in (">", "<")
            )
            return NodeSlots(words[0], frozenset(itertools.chain(*own)), leaving, arriving)
    raise StoreUnavailable("a cluster node did not list itself in CLUSTER NODES")


def list_unsettled(before: Sequence[NodeSlots], after: Sequence[NodeSlots]) -> set[int]:
    """Return the slots that were moving in one of two reports, or whose owners differ between them."""
    owners = [{slot: node.node for node in nodes for slot in node.slots} for nodes in (before, after)]
    moving = {slot for node in (*before, *after) for slot in node.leaving | node.arriving}
    return moving | {slot for slot, _ in owners[0].items() ^ owners[1].items()}


def is_refused_for_now(error: BaseException, *, follows_ask: bool) -> bool:
    """Return True if the command was refused because its slot is moving, so that nothing ran.

    With `follows_ask` the caller handles ASK as a redirection, so ASK does not count as a refusal.
    """
    text = str(error)
    return text.startswith("TRYAGAIN") or (not follows_ask and text.startswith("ASK "))


def get_slot(key: str) -> int:
    """Return the hash slot of the key: CRC16 of its hash tag, or of all of it, modulo 16384."""
    data = key.encode()
    begin = data.find(b"{")
    end = data.find(b"}", begin + 1)
    if begin >= 0 and end > begin + 1:
        data = data[begin + 1 : end]
    return crc_hqx(data, 0) % SLOTS
