"""I6: no token, code, family, index, mark or counter without an end; afterwards only the registry is left."""

import pytest
import redis

from tests.conftest import Clock
from tests.invariants.operations import Operations

BESIDE_MS = 60_000
"""Two lifetimes differ by no more for the time that a test takes. Of two kinds they differ by minutes at least."""
FOR_GOOD = ("user:", "id:", "client:", "realm:", "origin:", "seed:", "secret_keys:")


@pytest.mark.clause("decided-i6-everything-expires", "decided-i6-pending-login-expires")
async def test_all_keys_but_the_registry_expire(operations: Operations, store: redis.Redis) -> None:
    async for operation in operations.run_all():
        endless = [key for key in map(str, store.scan_iter(count=1000)) if store.pttl(key) == -1]

        assert not [key for key in endless if not key.startswith(FOR_GOOD)], operation


@pytest.mark.clause("decided-i6-everything-expires", "decided-i6-pending-login-expires")
async def test_when_all_has_expired_only_the_registry_is_left(
    operations: Operations, store: redis.Redis, clock: Clock, registry: None
) -> None:
    before = set(store.scan_iter(count=1000))
    async for _ in operations.run_all():
        pass
    assert set(store.scan_iter(count=1000)) > before
    clock.advance(2_592_000 + 86_400 + 901)

    assert set(store.scan_iter(count=1000)) == before


@pytest.mark.clause("decided-i6-everything-expires")
async def test_index_expires_with_its_longest_member(operations: Operations, store: redis.Redis, clock: Clock) -> None:
    async for operation in operations.run_all():
        for key in map(str, store.scan_iter("index:*")):
            members = store.zrange(key, 0, -1)
            shard = key.partition("{")[2].partition("}")[0]
            kinds = {member: member.replace(":", f":{{{shard}}}:", 1) for member in map(str, members)}
            # The index comes first: the time between the two questions must not make it look shorter than its members.
            index_ms = int(store.pttl(key))
            longest_ms = max(int(store.pttl(name)) for name in kinds.values())

            assert all(store.exists(name) for name in kinds.values()), operation
            # The entry of a session lives up to a day longer than the session.
            assert -BESIDE_MS < index_ms - longest_ms < 86_400_000 + BESIDE_MS, operation
