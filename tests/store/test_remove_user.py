"""The script of a pruned user deletes the record and the seed entry."""

import pytest

from service.protocol.user import User
from service.worker import Worker

CAROL = User(realm="main", username="carol@example.com", roles=("enduser",))


@pytest.mark.clause("decided-seed-prune")
async def test_a_record_and_its_seed_entry_go_together(worker: Worker) -> None:
    await worker.registry.users.put(CAROL, "{}")
    await worker.registry.users.remove(CAROL.identity)

    assert await worker.registry.users.find(CAROL.identity) is None
    assert await worker.registry.seeds.find(CAROL.identity) is None
