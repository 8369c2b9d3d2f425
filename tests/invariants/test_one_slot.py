"""I4: all keys of one user carry one hash tag."""

import re

import pytest
import redis

from service.protocol.user import identify_user
from tests.invariants.operations import Operations
from tests.support.clients_and_users import ALICE, BOB

USER_KINDS = {"access", "family", "code", "redeemed", "browser", "consent", "ended"}
USER_KINDS |= {"index", "revoked", "mark", "login", "user", "seed"}


@pytest.mark.clause("decided-i4-one-slot")
async def test_every_key_of_a_users_life_carries_the_users_tag(operations: Operations, store: redis.Redis) -> None:
    """Addresses and the registry have tags of their own; a stranger's user name leads to the tag of its own shard."""
    shards = {identify_user("main", name).shard for name in (ALICE.username, "nobody@example.com")}
    before = set(store.scan_iter())
    seen: set[str] = set()
    async for _ in operations.run_all():
        seen |= {str(key) for key in store.scan_iter(count=1000) if key not in before}
    of_user = {key for key in seen if not key.startswith(("address:", "lease:address:"))}
    of_user = {key for key in of_user if "{registry}" not in key}
    tags = {key: re.findall(r"\{(.*?)\}", key) for key in of_user}

    assert {"access", "family", "code", "redeemed", "ended", "browser", "consent", "index", "mark", "login"} <= {
        key.partition(":")[0] for key in of_user
    }
    assert {key.partition(":")[0] for key in of_user} <= USER_KINDS
    assert not {key: found for key, found in tags.items() if len(found) != 1 or found[0] not in shards}
    alice = identify_user("main", ALICE.username).shard
    assert {alice} == {found[0] for key, found in tags.items() if not key.startswith("login:")}


def test_two_users_mostly_have_two_tags() -> None:
    shards = {identify_user("main", f"user{number}@example.com").shard for number in range(1_000)}

    assert identify_user("main", ALICE.username).shard != identify_user("main", BOB.username).shard
    assert len(shards) > 800
    assert all(re.fullmatch("[0-9a-f]{3}", shard) for shard in shards)
