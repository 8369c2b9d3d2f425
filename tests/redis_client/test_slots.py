"""Hash slots, and the slots that nodes of a cluster report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from service.redis_client.slots import get_slot, list_unsettled, parse_own_slots

pytestmark = pytest.mark.clause("decided-redis-cluster")


def test_slots_that_moved_or_are_moving_are_unsettled() -> None:
    lines = {
        "before": b"a 10.0.0.1:1@2 myself,master - 0 0 1 connected 0-10 12 [7->-b]\n",
        "after": b"a 10.0.0.1:1@2 myself,master - 0 0 1 connected 0-6 8-9 12 [3-<-b]\n",
    }
    before, after = (parse_own_slots(line) for line in lines.values())

    assert before.slots == {*range(11), 12}
    assert list_unsettled([before], [before]) == {7}
    assert list_unsettled([before], [after]) == {3, 7, 10}
    assert list_unsettled([after], [after._replace(node="b", arriving=frozenset())]) == {*range(7), 8, 9, 12}
    assert list(map(set, (before.leaving, before.arriving, after.leaving, after.arriving))) == [{7}, set(), set(), {3}]


@given(st.text() | st.text("{}ab", max_size=8))
def test_a_key_has_the_slot_that_redis_py_computes(key: str) -> None:
    assert get_slot(key) == key_slot(key.encode())
