"""A file of very many users costs the same few steps and a few hundred bytes for each of them.

The whole tree of the file is never in memory. `scripts/bench` measures the seconds.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import run

import pytest
import redis

from service.protocol.user import identify_user
from service.redis_client.url import parse_redis_url
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.reader import parse_seed
from service.registry.seed_file.schema import BadSeed
from service.store.client import StoreClient
from service.store.registry import RegistryStore
from service.worker import Worker
from tests.conftest import MakeSettings
from tests.registry.seeds import make_seeding
from tests.support.loop_time import LoopTime
from tests.support.servers import CHECKOUT, RedisServer

USER = """\
  - username: user{number}@example.com
    password_hash: $argon2id$v=19$m=19456,t=2,p=1${salt}${digest}
    roles: [enduser]
    name: User Number {number}
"""

PER_BATCH = 500
MAX_CALLS = 12
MAX_STEPS = 200
READS = ("get", "hget", "hmget", "hgetall", "smembers")
WRITES = ("set", "hset", "del", "sadd")

LOADER = """
import asyncio, json, resource, sys
from pathlib import Path
from service.app import Worker
from service.registry.seed_file.reader import load_seed
from service.config.settings import load_settings

async def main(file, url):
    worker = Worker(load_settings({"REDIS_URL": url, "TOKEN_SERVICE_SECRET_KEY": "a key of 32 bytes with 16 distinct"}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = []
    for _ in range(2):
        outcome = await worker.seeding.apply(load_seed(Path(file), 8))
        told += [outcome.users.added, outcome.users.unchanged]
    await worker.close()
    print(json.dumps([*told, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]))

asyncio.run(main(*sys.argv[1:]))
"""


def make_lines(users: int) -> Iterator[str]:
    yield "users:\n"
    for number in range(users):
        salt, digest = (b64encode(number.to_bytes(size)).decode().rstrip("=") for size in (16, 32))
        yield USER.format(number=number, salt=salt, digest=digest)


def load(file: Path, users: int, server: RedisServer) -> list[int]:
    """Load such a file twice in a process of its own. Returns added and unchanged of both, then its growth in KiB."""
    with file.open("w") as lines:
        lines.writelines(make_lines(users))
    command = [sys.executable, "-c", LOADER, str(file), server.url]
    told = run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    return [int(part) for part in told.splitlines()[-1].strip("[]").split(",")]


@pytest.mark.long
@pytest.mark.clause("decided-seed-many-users")
def test_a_hundred_thousand_users_take_little_memory(
    store: redis.Redis, redis_server: RedisServer, tmp_path: Path
) -> None:
    added, _, added_again, unchanged, growth_kib = load(tmp_path / "seed.yaml", 100_000, redis_server)

    assert (added, added_again, unchanged) == (100_000, 0, 100_000)
    assert growth_kib / 1024 < 70


@pytest.mark.clause("decided-seed-many-users")
def test_a_user_of_a_large_file_takes_no_more_memory_than_a_few_times_the_entry(
    store: redis.Redis, redis_server: RedisServer, tmp_path: Path
) -> None:
    """A smaller case of the test above."""
    users = 4_000
    added, _, _, unchanged, growth_kib = load(tmp_path / "seed.yaml", users, redis_server)

    assert (added, unchanged) == (users, users)
    assert growth_kib / 1024 < 20


def count_steps(act: Callable[[], object]) -> int:
    """Count the calls of functions, those of C included."""
    steps = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return steps


@pytest.mark.clause("decided-seed-many-users")
def test_to_read_a_file_takes_as_many_steps_for_each_user() -> None:
    files = ["".join(make_lines(users)).encode() for users in (100, 100, 200, 300)]
    _, first, second, third = (count_steps(partial(parse_seed, file)) for file in files)

    assert third - second == second - first
    assert second - first < 100 * MAX_STEPS


@dataclass
class Costs:
    """The round trips to the store, and the commands that Redis ran for them."""

    calls: int
    reads: int
    writes: int

    def __sub__(self, other: Costs) -> Costs:
        return Costs(self.calls - other.calls, self.reads - other.reads, self.writes - other.writes)


@pytest.mark.clause("decided-seed-many-users")
async def test_to_apply_a_file_takes_as_many_commands_for_each_user(
    store: redis.Redis, make_settings: MakeSettings, held_time: LoopTime
) -> None:
    """The time stands still, so that there are no other commands. No existing hash is hashed again."""
    url = make_settings().redis_url
    assert url is not None
    calls: list[str] = []
    connection = StoreClient(parse_redis_url(url), watch=lambda call, *_: calls.append(call))
    seeding = make_seeding(connection)
    await connection.read_info("memory")  # connects to every master; on a cluster a handshake reads a key, once

    def count() -> Costs:
        told: dict[str, dict[str, int]] = store.info("commandstats")
        by_name = {name.removeprefix("cmdstat_"): each["calls"] for name, each in told.items()}
        return Costs(len(calls), *(sum(by_name.get(name, 0) for name in names) for names in (READS, WRITES)))

    firsts: list[Costs] = []
    agains: list[Costs] = []
    for users in (PER_BATCH, 2 * PER_BATCH, 3 * PER_BATCH):
        store.flushall()
        for costs in (firsts, agains):
            before = count()
            await seeding.apply(parse_seed("".join(make_lines(users)).encode()), force=costs is agains)
            costs.append(count() - before)
    seed = parse_seed("".join(make_lines(PER_BATCH)).encode())
    found = await RegistryStore(connection).find_users([identify_user("main", entry.username) for entry in seed.users])
    assert [user and user.password_hash for user in found] == [entry.password_hash for entry in seed.users]
    await connection.close()

    for one, two, three in (firsts, agains):
        assert three - two == two - one
    of_a_batch, of_a_batch_again = firsts[2] - firsts[1], agains[2] - agains[1]
    assert of_a_batch.calls <= MAX_CALLS
    assert of_a_batch.reads <= 3 * PER_BATCH
    assert of_a_batch.writes <= 3 * PER_BATCH
    assert of_a_batch_again.reads <= 3 * PER_BATCH
    assert of_a_batch_again.writes == 0


async def test_batches_miss_nobody(worker: Worker, seeding: Seeding) -> None:
    seeding.users_per_batch = 7
    seed = parse_seed("".join(make_lines(40)).encode())
    told: list[int] = []

    assert (await seeding.apply(seed, on_progress=lambda done, _: told.append(done))).users.added == 40
    assert told == [7, 14, 21, 28, 35, 40]
    assert all(await worker.registry.find_users([identify_user("main", entry.username) for entry in seed.users]))
    assert (await seeding.apply(parse_seed(b"users:"), prune=True)).users.removed == 40


async def test_a_file_that_is_in_force_is_not_read_again(seeding: Seeding, tmp_path: Path) -> None:
    """Each worker starts after the supervisor has read the file. A second reading would refuse it."""
    file = tmp_path / "seed.yaml"
    file.write_text("users:\n- {username: alice, password: twelve chars}\n")

    assert (await seeding.apply_file(file, 12)).users.added == 1
    assert (await seeding.apply_file(file, 13)).changes == 0
    file.write_text(file.read_text() + "# edited\n")
    with pytest.raises(BadSeed):
        await seeding.apply_file(file, 13)


@pytest.mark.clause("decided-seed-all-mistakes-at-once")
async def test_a_file_with_mistakes_is_refused_even_where_the_one_before_was_in_force(
    seeding: Seeding, tmp_path: Path
) -> None:
    file = tmp_path / "seed.yaml"
    file.write_text("".join(make_lines(3)))
    await seeding.apply_file(file, 8)
    file.write_text("".join(make_lines(3)) + "  - username: 5\n")
    with pytest.raises(BadSeed, match=r"users\[3\].username: expected text, got a number"):
        await seeding.apply_file(file, 8)
