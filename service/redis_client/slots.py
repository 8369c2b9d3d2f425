"""Waits for slots of a cluster that move key by key (MIGRATE), so that the keys of one slot lie on two nodes.

The node that has the slot refuses a command for keys that it does not all have: with TRYAGAIN where it has some of
them, with ASK where it has none. Redis 6.2 says ASK in both cases. Either means that nothing ran, so the command may be
sent again until the slot has moved.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import time
from binascii import crc_hqx
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from .deadline import StoreUnavailable, remaining_seconds

RETRY_DELAY_SECONDS: Final = 0.05
"""The mean pause between two attempts. It varies by half, so that callers do not send together."""

SLOTS: Final = 16384
"""The number of hash slots of a cluster."""

_RESERVE_SECONDS: Final = 0.1
"""Time that is kept back, so that the caller gets SlotIsMoving and no timeout."""

_FLAGS_AT: Final = 2
"""The place of the flags in a line of an answer to CLUSTER NODES."""

_WORDS_BEFORE_SLOTS: Final = 8
"""The place of the first slot there."""

_SLOTS: Final = re.compile(
    r"(?P<first>[0-9]{1,5})(?:-(?P<last>[0-9]{1,5}))?|\[(?P<moving>[0-9]{1,5})-(?P<way>[<>])-\w+\]"
)


class SlotIsMoving(StoreUnavailable):
    """The slot did not arrive in time. The refused command changed nothing; earlier ones of the same work may have."""


class SlotWait:
    """Waits between the attempts to send one command. `on_refusal` hears of each refusal.

    `started`, by the monotonic clock, is when the command was sent for the first time, if it was sent before.
    """

    def __init__(self, on_refusal: Callable[[], None], started: float | None = None) -> None:
        self._ends = (started or time.monotonic()) + remaining_seconds() - _RESERVE_SECONDS
        self._on_refusal = on_refusal

    async def pause(self, refusal: BaseException) -> None:
        """Raise SlotIsMoving where there is no time for another attempt."""
        self._on_refusal()
        seconds = RETRY_DELAY_SECONDS * random.uniform(0.5, 1.5)
        if time.monotonic() + seconds > self._ends:
            raise SlotIsMoving(f"a slot of the cluster is moving to another node, or was left half moved: {refusal}")
        await asyncio.sleep(seconds)


class NodeSlots(NamedTuple):
    """The slots of one master, as it tells them: those that it owns, and those that are leaving it or arriving."""

    node: str
    slots: frozenset[int]
    leaving: frozenset[int]
    arriving: frozenset[int]


def parse_own_slots(answer: bytes) -> NodeSlots:
    """Read the line about the asked node itself in an answer to CLUSTER NODES. Raises StoreUnavailable where none is.

    Example of a line: `<id> 10.0.0.1:6379@16379 myself,master - 0 0 3 connected 0-92 94-5460 [93->-<id>]`.
    """
    for line in answer.decode(errors="replace").split("\n"):
        words = line.split()
        if len(words) >= _WORDS_BEFORE_SLOTS and "myself" in words[_FLAGS_AT].split(","):
            found = [_SLOTS.fullmatch(word) for word in words[_WORDS_BEFORE_SLOTS:]]
            slots = [slot for slot in found if slot is not None]
            if len(slots) < len(found):
                break
            own = [range(int(slot["first"]), int(slot["last"] or slot["first"]) + 1) for slot in slots if slot["first"]]
            leaving, arriving = (
                frozenset(int(slot["moving"]) for slot in slots if slot["way"] == way) for way in (">", "<")
            )
            return NodeSlots(words[0], frozenset(itertools.chain(*own)), leaving, arriving)
    raise StoreUnavailable("a node of the cluster does not say which slots are its own")


def list_unsettled(before: Sequence[NodeSlots], after: Sequence[NodeSlots]) -> set[int]:
    """Return the slots that were moving at one of two times, or had another owner at each."""
    owners = [{slot: node.node for node in nodes for slot in node.slots} for nodes in (before, after)]
    moving = {slot for node in (*before, *after) for slot in node.leaving | node.arriving}
    return moving | {slot for slot, _ in owners[0].items() ^ owners[1].items()}


def is_refused_for_now(error: BaseException, *, follows_ask: bool) -> bool:
    """Tell whether nothing ran because the slot is moving. ASK means so for a command that does not follow it."""
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


def guard_key(key: str) -> str:
    """Return the name of a key that never exists, in the slot of this one.

    A script that makes names of keys by itself declares it. In a slot that is moving Redis then refuses to run the
    script at all, instead of running it where some of those keys are missing.
    """
    return f"guard:{key[key.index('{') : key.index('}') + 1]}"
