"""The lifetimes of all keys, by a clock of the server that moves: fakeredis itself expires the keys.

The clock of a real server cannot be moved. Other tests move the offset of the scripts, and shorten each lifetime.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import pytest
import redis

from service.redis_client.lock import LOCK_SECONDS
from service.store.attempts import Counter
from service.store.keys import EXPIRING_KINDS, LASTING_KINDS, family_key, get_kind, registry_key
from service.store.sessions.families import Spent
from service.store.single_use import make_state_key, make_token_key
from tests.house.key_table import read_table
from tests.lua.fake_redis import ServerClock
from tests.lua.scenarios import ONE, fence, keep, probe, run_revoke_all
from tests.lua.store_objects import CLIENT_ID, INDEX, MARK, REVOKED, SHARD, USER, Grant, Page, StoreObjects

MINUTE: Final = 60
DAY: Final = 86_400
MONTH: Final = 30 * DAY
KEPT: Final = MONTH + DAY
"""The lifetime of the user's index, with the look-ahead."""

LOGIN: Final = 900
"""The time by which a mark outlives what it covers."""

STATE_KEY: Final = make_state_key("state")
LOCK_MS: Final = 1000 * LOCK_SECONDS

OTHER: Final = Counter("login:{abc}:other", 5, 60_000)
OF_ADDRESS: Final = Counter("address:{abc}:login", 1, 3_600_000)


async def end_family(objects: StoreObjects) -> None:
    grant = await objects.must_start()
    await objects.families.end(SHARD, grant.first.family_digest, client_id=CLIENT_ID, reason="revoked")


async def interrupt_revocation(objects: StoreObjects) -> None:
    await objects.must_start()
    await run_revoke_all(objects.store_client, 0)


async def redeem_code(objects: StoreObjects) -> None:
    await objects.redeem(await objects.issue_code())


async def take_lock(objects: StoreObjects, holder: str) -> bool:
    command = ("SET", registry_key("lock"), holder, "NX", "PX", LOCK_MS)
    return await objects.store_client.write(*command) is not None


async def fail_twice(objects: StoreObjects) -> None:
    for _ in range(2):
        await objects.attempts.count([ONE])


WRITES: Final[dict[str, tuple[int, Callable[[StoreObjects], Awaitable[object]]]]] = {
    "access": (600, StoreObjects.must_start),
    "family": (MONTH, StoreObjects.must_start),
    "ended": (DAY, end_family),
    "code": (MINUTE, StoreObjects.issue_code),
    "redeemed": (600, redeem_code),
    "external": (600, lambda objects: objects.single_use.take(STATE_KEY, 600_000)),
    "logout": (1_200, lambda objects: objects.single_use.note(make_token_key(USER.identity, "a token"))),
    "browser": (3_600, lambda objects: objects.sign_in(Page())),
    "consent": (1_800, StoreObjects.open),
    "index": (KEPT, StoreObjects.must_start),
    "revoked": (KEPT + LOGIN, interrupt_revocation),
    "mark": (KEPT + LOGIN, interrupt_revocation),
    "login": (MINUTE, fail_twice),
    "address": (3_600, lambda objects: objects.attempts.count([OF_ADDRESS])),
    "lease": (10, lambda objects: objects.attempts.reserve([OTHER])),
    "lock": (10, lambda objects: take_lock(objects, "a")),
    "probe": (10, lambda objects: probe(objects.store_client)),
    "fence": (DAY, lambda objects: fence(objects.store_client)),
    "events": (MONTH, lambda objects: objects.events.append([b"{}"], [b"{}"], [b"{}"])),
}
"""The lifetime of each kind of key in seconds, and what writes it."""


def list_keys(fake: redis.Redis, kind: str) -> list[str]:
    return [key for key in map(str, fake.scan_iter(count=1000)) if get_kind(key) == kind]


def is_alive(fake: redis.Redis, grant: Grant) -> bool:
    return bool(fake.exists(family_key(SHARD, grant.first.family_digest)))


def test_every_kind_of_key_that_expires_is_here() -> None:
    assert WRITES.keys() == {row.kind for row in read_table()} - LASTING_KINDS == EXPIRING_KINDS


@pytest.mark.clause("decided-i6-everything-expires", "decided-throttle-lifetimes")
@pytest.mark.parametrize("kind", WRITES)
async def test_a_key_ends_with_its_lifetime(
    objects: StoreObjects, fake: redis.Redis, server_clock: ServerClock, kind: str
) -> None:
    seconds, write = WRITES[kind]
    await write(objects)
    keys = list_keys(fake, kind)
    server_clock.advance(seconds - 1)

    assert keys
    assert list_keys(fake, kind) == keys
    assert [fake.pttl(key) for key in keys] == [1_000] * len(keys)
    server_clock.advance(2)
    assert list_keys(fake, kind) == []


@pytest.mark.clause("decided-i6-everything-expires")
async def test_nothing_is_left_of_any_operation(
    objects: StoreObjects, fake: redis.Redis, server_clock: ServerClock
) -> None:
    for _, write in WRITES.values():
        await write(objects)
        assert all(int(fake.pttl(key)) > 0 for key in fake.scan_iter(count=1000))
    server_clock.advance(KEPT + LOGIN + 1)

    assert fake.dbsize() == 0


YEAR: Final = 365 * DAY


@pytest.mark.clause("decided-client-lifetimes", "decided-i6-everything-expires")
async def test_two_clients_live_two_lives(objects: StoreObjects, fake: redis.Redis, server_clock: ServerClock) -> None:
    await objects.must_start()
    long = list_keys(fake, "access") + list_keys(fake, "family")
    await objects.must_start(access_token_ttl=60, refresh_token_ttl=3_600)
    brief = sorted({*list_keys(fake, "access"), *list_keys(fake, "family")} - {*long})

    assert [fake.pttl(key) for key in (*long, *brief)] == [600_000, 1000 * MONTH, 60_000, 3_600_000]
    assert fake.pttl(INDEX) == 1000 * KEPT
    server_clock.advance(61)
    assert [fake.exists(key) for key in (*long, *brief)] == [1, 1, 0, 1]
    server_clock.advance(3_540)
    assert [fake.exists(key) for key in (*long, *brief)] == [0, 1, 0, 0]


@pytest.mark.clause("decided-client-lifetimes", "decided-i7-revocation-is-final")
async def test_mark_outlives_a_client_with_longer_sessions(
    objects: StoreObjects, fake: redis.Redis, server_clock: ServerClock
) -> None:
    """The mark of an interrupted revokeAll must cover its sessions beyond the refresh_token_ttl of the settings."""
    grant = await objects.must_start(refresh_token_ttl=YEAR)
    later = await objects.must_start()
    await run_revoke_all(objects.store_client, 0)
    server_clock.advance(YEAR - DAY)

    assert is_alive(fake, grant)
    assert not is_alive(fake, later)
    assert (await objects.spend(grant, 1, refresh_token_ttl=YEAR)).verdict == "unknown"
    assert fake.pttl(MARK) == fake.pttl(REVOKED) == 1000 * (2 * DAY + LOGIN)
    server_clock.advance(2 * DAY + LOGIN + 1)
    assert fake.dbsize() == 0


@pytest.mark.clause("decided-client-lifetimes", "decided-i6-everything-expires", "decided-access-token-within-family")
async def test_nothing_outlives_a_session_of_changing_lives(
    objects: StoreObjects, fake: redis.Redis, server_clock: ServerClock
) -> None:
    grant = await objects.must_start(refresh_token_ttl=YEAR, access_token_ttl=DAY)
    for generation, days in enumerate((90, 1, 400, 2), start=1):
        server_clock.advance(DAY // 2)
        outcome = await objects.spend(grant, generation, refresh_token_ttl=days * DAY, access_token_ttl=3 * DAY)
        family_ms = int(fake.pttl(family_key(SHARD, grant.first.family_digest)))
        assert isinstance(outcome, Spent)
        assert outcome.lives_ms == 1000 * DAY * min(days, 3)
        assert (await objects.spend(grant, generation, access_token_ttl=YEAR)).verdict == "repeated"
        assert all(int(fake.pttl(key)) <= family_ms for key in list_keys(fake, "access"))
        assert 0 <= int(fake.pttl(INDEX)) - family_ms <= 1000 * DAY
        assert family_ms >= 1000 * days * DAY


async def test_a_lock_that_is_not_renewed_is_lost_after_ten_seconds(
    objects: StoreObjects, server_clock: ServerClock
) -> None:
    assert await take_lock(objects, "a")
    server_clock.advance(9)
    assert not await take_lock(objects, "b")
    assert await keep(objects.store_client, "a", LOCK_MS) == "kept"
    server_clock.advance(9)
    assert not await take_lock(objects, "b")
    server_clock.advance(2)

    assert await take_lock(objects, "b")
    assert await keep(objects.store_client, "a", LOCK_MS) == "lost"


async def test_a_login_returns_once_within_its_lifetime(objects: StoreObjects, server_clock: ServerClock) -> None:
    assert await objects.single_use.take(STATE_KEY, 600_000)
    server_clock.advance(599)
    assert not await objects.single_use.take(STATE_KEY, 600_000)
    server_clock.advance(2)

    assert await objects.single_use.take(STATE_KEY, 600_000)


async def test_each_event_gives_its_stream_thirty_more_days(
    objects: StoreObjects, fake: redis.Redis, server_clock: ServerClock
) -> None:
    await objects.events.append([b"{}"], [b"{}"], [b"{}"])
    server_clock.advance(MONTH - 1)
    await objects.events.append([b"{}"])
    server_clock.advance(MONTH - 1)

    assert list_keys(fake, "events") == ["events:{registry}:users"]
    assert fake.xlen("events:{registry}:users") == 2
    server_clock.advance(2)
    assert fake.dbsize() == 0
