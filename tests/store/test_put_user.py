"""The script of a user's record writes the seed entry that it comes from, too."""

import msgspec
import pytest

from service.protocol.user import User
from service.worker import Worker

CAROL = User(realm="main", username="carol@example.com", roles=("enduser",))


@pytest.mark.clause("decided-seed-interrupted")
async def test_a_record_and_its_seed_entry_are_written_together(worker: Worker) -> None:
    await worker.registry.users.put(CAROL, '{"username":"carol@example.com"}')
    first = await worker.registry.users.find(CAROL.identity)
    await worker.registry.users.put(msgspec.structs.replace(CAROL, name="Carol"), None)
    second = await worker.registry.users.find(CAROL.identity)

    assert first is not None
    assert second is not None
    assert (first.name, second.name, first.revision != second.revision) == ("", "Carol", True)
    assert await worker.registry.seeds.find(CAROL.identity) == '{"username":"carol@example.com"}'
