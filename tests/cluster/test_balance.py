"""The keys of many users lie evenly on the masters, though each user's lie together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from redis.crc import key_slot

from service.protocol.user import UserIdentity, identify_user
from service.store.keys import user_key
from tests.cluster.nodes import SLOTS

USERS = 100_000
KEYS_OF_A_USER = 4


def identify_many() -> Iterator[UserIdentity]:
    return (identify_user("main", f"user-{number}@example.com") for number in range(USERS))


def is_balanced(counts: list[int]) -> bool:
    return max(counts) < 1.2 * sum(counts) / len(counts)


@pytest.mark.clause("decided-balanced-masters")
def test_the_keys_of_a_hundred_thousand_users_are_spread_evenly_over_masters() -> None:
    """Each master has an equal part of the slots."""
    slots: Counter[int] = Counter()
    for user in identify_many():
        slots[key_slot(user_key(user).encode())] += KEYS_OF_A_USER

    for masters in (2, 3, 4, 6, 8):
        counts = Counter[int]()
        for slot, keys in slots.items():
            counts[slot * masters // SLOTS] += keys
        assert sum(counts.values()) == USERS * KEYS_OF_A_USER
        assert is_balanced([counts[master] for master in range(masters)]), (masters, counts)
