"""A file of many users is applied batch by batch, and a file in force is not read again."""

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.protocol.user import identify_user
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.entries import BadSeed
from service.registry.seed_file.read import parse_seed
from service.store.registry.store import RegistryStore
from service.worker import Worker

USER = """\
  - username: user{number}@example.com
    password_hash: $argon2id$v=19$m=19456,t=2,p=1${salt}${digest}
    roles: [enduser]
    name: User Number {number}
"""


def make_lines(users: int) -> Iterator[str]:
    yield "users:\n"
    for number in range(users):
        salt, digest = (b64encode(number.to_bytes(size)).decode().rstrip("=") for size in (16, 32))
        yield USER.format(number=number, salt=salt, digest=digest)


@pytest.mark.clause("decided-seed-many-users")
async def test_a_console_change_comes_in_between_two_batches(worker: Worker, seeding: Seeding) -> None:
    seeding.entries_per_batch = 10
    applied = asyncio.Event()

    def note(done: int, _: int) -> None:
        if done:
            applied.set()

    seed = parse_seed("".join(make_lines(300)).encode())
    applying = asyncio.create_task(seeding.apply(seed, on_progress=note))
    await applied.wait()
    async with worker.registry.make_lock():
        assert not applying.done()

    assert (await applying).counts["users"]["added"] == 300


async def test_batches_cover_all_users(worker: Worker, seeding: Seeding) -> None:
    seeding.entries_per_batch = 7
    seed = parse_seed("".join(make_lines(40)).encode())
    told: list[int] = []

    assert (await seeding.apply(seed, on_progress=lambda done, _: told.append(done))).counts["users"]["added"] == 40
    assert told == [0, 7, 14, 21, 28, 35, 40]
    assert all(await worker.registry.users.find_many([identify_user("main", entry.username) for entry in seed.users]))
    assert (await seeding.apply(parse_seed(b"users:"), prune=True)).counts["users"]["removed"] == 40


async def test_applied_file_is_not_parsed_again(seeding: Seeding, tmp_path: Path) -> None:
    """Each worker starts after the supervisor has read the file. A second reading would refuse it."""
    file = tmp_path / "seed.yaml"
    file.write_text("users:\n- {username: alice, password: twelve chars}\n")

    assert (await seeding.apply_file(file, 12)).counts["users"]["added"] == 1
    assert (await seeding.apply_file(file, 13)).changes == 0
    file.write_text(file.read_text() + "# edited\n")
    with pytest.raises(BadSeed):
        await seeding.apply_file(file, 13)


async def test_file_that_changes_while_a_worker_waits_is_read_then(
    worker: Worker, seeding: Seeding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, make_lock_for = asyncio.Event(), RegistryStore.make_lock_for
    monkeypatch.setattr(RegistryStore, "make_lock_for", lambda store, work, *_: make_lock_for(store, work, waiting.set))
    file = tmp_path / "seed.yaml"
    file.write_text("users:\n- {username: alice, name: Old, password: twelve chars}\n")
    async with worker.registry.make_lock_for("seed"):
        applying = asyncio.create_task(seeding.apply_file(file, 8))
        await waiting.wait()
        file.write_text(file.read_text().replace("Old", "New"))
    await applying

    user = await worker.registry.users.find(identify_user("main", "alice"))
    assert user is not None
    assert user.name == "New"
