"""The keys of many users lie evenly on the masters, though each user's lie together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pytest
from redis.crc import key_slot

from service.gateway.access_record import access_key
from service.protocol.user import UserIdentity, identify_user
from service.store.keys import family_key, index_key, user_key
from tests.cluster.nodes import SLOTS, running_cluster

USERS = 100_000
KEYS_OF_A_USER = 4
USERS_AT_ONCE = 2_000


def identify_many() -> Iterator[UserIdentity]:
    return (identify_user("main", f"user-{number}@example.com") for number in range(USERS))


def keys_of(user: UserIdentity) -> tuple[str, ...]:
    """The user's record, a session with its access token, and the index of both."""
    digest = user.subject
    return (
        user_key(user),
        family_key(user.shard, digest),
        access_key(user.shard, digest),
        index_key(user.shard, user.subject),
    )


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


@pytest.mark.long
@pytest.mark.clause("decided-balanced-masters")
@pytest.mark.parametrize("masters", [2, 3])
def test_no_master_of_a_real_cluster_holds_much_more_than_the_others(masters: int, tmp_path: Path) -> None:
    with running_cluster(tmp_path, masters) as cluster, ExitStack() as looking:
        nodes = [looking.enter_context(node.connect()) for node in cluster.nodes]
        users = identify_many()
        while batch := list(islice(users, USERS_AT_ONCE)):
            pipelines = [node.pipeline(transaction=False) for node in nodes]
            for user in batch:
                pipeline = pipelines[cluster.node_of(user_key(user))]
                for key in keys_of(user):
                    pipeline.set(key, "")
            for pipeline in pipelines:
                pipeline.execute()

        counts = [int(node.dbsize()) for node in nodes]
        assert sum(counts) == USERS * KEYS_OF_A_USER
        assert is_balanced(counts), counts
