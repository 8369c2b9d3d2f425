"""The keys of many users lie evenly on the masters, though each user's lie together."""

from collections import Counter

import pytest
from redis.crc import key_slot

from service.protocol.user import identify_user
from service.store.keys import user_key
from tests.cluster.nodes import SLOTS

USERS = 100_000


@pytest.mark.clause("decided-balanced-masters")
def test_keys_of_many_users_spread_evenly_over_masters() -> None:
    """All keys of a user lie in one slot, and each master has an equal part of the slots."""
    users = (identify_user("main", f"user-{number}@example.com") for number in range(USERS))
    slots = Counter(key_slot(user_key(user).encode()) for user in users)

    for masters in (2, 3, 4, 6, 8):
        counts = Counter[int]()
        for slot, keys in slots.items():
            counts[slot * masters // SLOTS] += keys
        assert max(counts.values()) < 1.2 * USERS / masters, (masters, counts)
