"""The script of a user's record writes the seed entry that it comes from, too."""

import msgspec
import pytest

from service.protocol.user import User
from service.worker import Worker

CAROL = User(realm="main", username="carol@example.com", roles=("enduser",))


@pytest.mark.clause("decided-seed-interrupted")
async def test_a_record_and_its_seed_entry_are_written_together(worker: Worker) -> None:
    await worker.registry.put_user(CAROL, '{"username":"carol@example.com"}')
    first = await worker.registry.find_user(CAROL.identity)
    await worker.registry.put_user(msgspec.structs.replace(CAROL, name="Carol"), None)
    second = await worker.registry.find_user(CAROL.identity)

    assert first is not None
    assert second is not None
    assert (first.name, second.name, first.revision != second.revision) == ("", "Carol", True)
    assert await worker.registry.find_seed(CAROL.identity) == '{"username":"carol@example.com"}'
