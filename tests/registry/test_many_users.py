"""A file of very many users: seconds and a few hundred bytes each, not minutes and the whole tree of it."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from subprocess import run

import pytest
import redis

from service.app import Parts
from service.protocol.user import identify_user
from service.registry import seeding as seeding_module
from service.registry.seed import BadSeed, parse_seed
from service.registry.seeding import Seeding
from tests.servers import CHECKOUT, RedisServer

USER = """\
  - username: user{number}@example.com
    password_hash: $argon2id$v=19$m=19456,t=2,p=1${salt}${digest}
    roles: [enduser]
    name: User Number {number}
"""

LOADER = """
import asyncio, json, resource, sys, time
from pathlib import Path
from service.app import Parts
from service.registry.seed import load_seed
from service.settings import load_settings

async def main(file, url):
    parts = Parts(load_settings({"REDIS_URL": url, "TOKEN_SERVICE_SECRET_KEY": "a key of 32 bytes with 16 distinct"}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = []
    for _ in range(2):
        started = time.process_time()
        seed = load_seed(Path(file), 8)
        outcome = await parts.seeding.apply(seed)
        told += [time.process_time() - started, outcome.users.added, outcome.users.unchanged]
    await parts.close()
    print(json.dumps([*told, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]))

asyncio.run(main(*sys.argv[1:]))
"""


def make_lines(users: int) -> Iterator[str]:
    yield "users:\n"
    for number in range(users):
        salt, digest = (b64encode(number.to_bytes(size)).decode().rstrip("=") for size in (16, 32))
        yield USER.format(number=number, salt=salt, digest=digest)


def load(file: Path, users: int, server: RedisServer) -> list[float]:
    """Loads such a file twice in a process of its own: seconds, added and unchanged of both, then its growth in KiB."""
    with file.open("w") as lines:
        lines.writelines(make_lines(users))
    command = [sys.executable, "-c", LOADER, str(file), server.url]
    told = run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    return [float(part) for part in told.splitlines()[-1].strip("[]").split(",")]


def spent_seconds(store: redis.Redis) -> float:
    usage = store.info("cpu")
    return float(usage["used_cpu_user"]) + float(usage["used_cpu_sys"])


@pytest.mark.long
@pytest.mark.clause("decided-seed-many-users")
def test_a_hundred_thousand_users_take_half_a_minute_and_little_memory(
    store: redis.Redis, redis_server: RedisServer, tmp_path: Path
) -> None:
    """In seconds of a core, ours and Redis's one after the other, whatever else the machine does."""
    before = spent_seconds(store)
    first, added, _, again, added_again, unchanged, growth_kib = load(tmp_path / "seed.yaml", 100_000, redis_server)

    assert (added, added_again, unchanged) == (100_000, 0, 100_000)
    assert first + spent_seconds(store) - before < 30
    assert again < 15
    assert growth_kib / 1024 < 70


@pytest.mark.clause("decided-seed-many-users")
def test_a_user_of_a_large_file_takes_no_more_memory_than_a_few_times_the_entry(
    store: redis.Redis, redis_server: RedisServer, tmp_path: Path
) -> None:
    """The small sibling of the test above."""
    users = 4_000
    first, added, _, again, _, unchanged, growth_kib = load(tmp_path / "seed.yaml", users, redis_server)

    assert (added, unchanged) == (users, users)
    assert (first < 3, again < 2) == (True, True)
    assert growth_kib / 1024 < 20


async def test_batches_miss_nobody(parts: Parts, seeding: Seeding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeding_module, "_USERS_PER_BATCH", 7)
    seed = parse_seed("".join(make_lines(40)).encode())
    told: list[int] = []

    assert (await seeding.apply(seed, on_progress=lambda done, _: told.append(done))).users.added == 40
    assert told == [7, 14, 21, 28, 35, 40]
    assert all(await parts.registry.find_users([identify_user("main", entry.username) for entry in seed.users]))
    assert (await seeding.apply(parse_seed(b"users:"), prune=True)).users.removed == 40


async def test_a_file_that_is_in_force_is_not_read_again(
    seeding: Seeding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As each worker starts; the supervisor has looked at the file already."""
    file = tmp_path / "seed.yaml"
    file.write_text("".join(make_lines(3)))

    assert (await seeding.apply_file(file, 8)).users.added == 3
    monkeypatch.delattr(seeding_module, "load_seed")
    assert (await seeding.apply_file(file, 8)).changes == 0


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
