"""A load that breaks off anywhere is finished by the next start, which ends all sessions that must end."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from service.protocol.user import identify_user
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.url import parse_redis_url
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.read import parse_seed
from service.store.client import StoreClient
from service.worker import Worker
from tests.conftest import MakeSettings
from tests.registry.seeds import OTHER_HASH, SeedText, make_seeding
from tests.store.interruptions import BreakingConnection
from tests.store.sessions import Sessions
from tests.support.clients_and_users import ALICE
from tests.support.origins import is_origin

CALLS = (6, 9, 13)
"""Before the first entry is written, between two entries, and before sessions end."""

FIRST = SeedText()
SECOND = FIRST.but(
    scope="realm:main role:organisation",
    grants="password, refresh_token",
    redirect_uri="https://phone.example/y",
    password_hash=OTHER_HASH,
    roles="organisation",
    name="Another",
)


async def break_off(make_settings: MakeSettings, seed: SeedText, calls: int) -> bool:
    """Apply a seed over a connection that fails after so many calls. Returns True if it failed."""
    connection = BreakingConnection(make_settings(), calls=calls)
    try:
        await make_seeding(connection).apply(seed.seed)
    except StoreUnavailable:
        return True
    finally:
        await connection.close()
    return False


async def registry_of(worker: Worker) -> list[object]:
    """Return the registry without the revisions, which every write changes."""
    names = ("alice@example.com", "bob@example.com")
    users = await worker.registry.find_users([identify_user("main", name) for name in names])
    clients = [await worker.registry.find_client(client_id) for client_id in ("phone-app", "web-shop")]
    origins = [await is_origin(worker, f"https://{host}") for host in ("phone.example", "shop.example")]
    plain = [user and msgspec.structs.replace(user, revision="") for user in users]
    return [*plain, *clients, *origins, await worker.registry.find_realm("cep") is not None]


@pytest.mark.clause("decided-seed-interrupted", "decided-seed-ends-sessions")
@pytest.mark.parametrize("calls", CALLS)
async def test_the_next_start_finishes_a_change_and_ends_what_had_to_end(
    sessions: Sessions, seeding: Seeding, make_settings: MakeSettings, calls: int
) -> None:
    await seeding.apply(SECOND.seed)
    expected = await registry_of(sessions.worker)
    sessions.store.flushall()
    await seeding.apply(FIRST.seed)
    alice, code = await sessions.start(ALICE, "web-shop"), await sessions.issue_code()
    await break_off(make_settings, SECOND, calls)
    await seeding.apply(SECOND.seed)

    assert await registry_of(sessions.worker) == expected
    assert not sessions.record(alice)
    assert sessions.live(alice) == [False]
    assert not sessions.code_is_there(code)


@pytest.mark.clause("decided-seed-interrupted")
@pytest.mark.parametrize("calls", CALLS)
async def test_going_back_to_the_file_of_before_undoes_a_change_that_broke_off(
    worker: Worker, seeding: Seeding, make_settings: MakeSettings, calls: int
) -> None:
    """An operator whose new file was not fully applied restarts with the old one."""
    await seeding.apply(FIRST.seed)
    expected = await registry_of(worker)
    await break_off(make_settings, SECOND, calls)
    await seeding.apply(FIRST.seed)

    assert await registry_of(worker) == expected


@pytest.mark.clause("decided-seed-interrupted", "decided-seed-ends-sessions", "decided-user-change-ends-tokens")
async def test_sessions_of_a_changed_user_end_even_where_the_next_file_no_longer_has_the_user(
    sessions: Sessions, seeding: Seeding, make_settings: MakeSettings
) -> None:
    """Any next file ends the sessions that must end after the record changed."""
    cut_short = 0
    for calls in range(30):
        sessions.store.flushall()
        await seeding.apply(FIRST.seed)
        before, alice = await sessions.find_user(), await sessions.start(ALICE, "web-shop")
        await break_off(make_settings, SECOND, calls)
        is_changed = (await sessions.find_user()).revision != before.revision
        cut_short += is_changed and any(sessions.live(alice))
        await seeding.apply(parse_seed(b"{}"))

        assert not (is_changed and any(sessions.live(alice))), calls
        assert not (is_changed and sessions.record(alice)), calls
        assert not sessions.store.exists("pending_revocations:{registry}"), calls

    assert cut_short


@pytest.mark.clause("decided-seed-interrupted", "decided-seed-ends-sessions")
async def test_sessions_of_a_narrowed_client_end_even_where_the_next_file_no_longer_has_the_client(
    sessions: Sessions, seeding: Seeding, make_settings: MakeSettings
) -> None:
    """The client lost the right to refresh, which its next record does not show."""
    narrowed = FIRST.but(grants="password, authorization_code")
    cut_short = 0
    for calls in range(30):
        sessions.store.flushall()
        await seeding.apply(FIRST.seed)
        alice = await sessions.start()
        await break_off(make_settings, narrowed, calls)
        client = await sessions.worker.registry.find_client("phone-app")
        is_changed = client is not None and "refresh_token" not in client.grant_types
        cut_short += is_changed and any(sessions.live(alice))
        await seeding.apply(parse_seed(b"{}"))

        assert is_changed is not any(sessions.live(alice)), calls
        assert not sessions.store.exists("pending_sweeps:{registry}"), calls

    assert cut_short


class StealingConnection(StoreClient):
    """A connection whose registry lock another process takes just before a sweep reads the sessions."""

    async def scan(self, pattern: str) -> AsyncIterator[list[str]]:
        await self.write("SET", "lock:{registry}:scan", "another", "PX", 60_000)
        async for batch in super().scan(pattern):
            yield batch


@pytest.mark.clause("decided-seed-one-worker-applies", "decided-seed-interrupted")
async def test_whoever_lost_the_lock_in_a_sweep_stops_and_the_sweep_stays_owed(
    sessions: Sessions, seeding: Seeding, make_settings: MakeSettings
) -> None:
    await seeding.apply(FIRST.seed)
    alice = await sessions.start()
    url = make_settings().redis_url
    assert url is not None
    connection = StealingConnection(parse_redis_url(url))
    with pytest.raises(StoreUnavailable):
        await make_seeding(connection).apply(FIRST.but(grants="password").seed)
    await connection.close()

    assert sessions.store.get("lock:{registry}:scan") == "another"
    assert str(sessions.store.hget("pending_sweeps:{registry}", "phone-app")).startswith("refresh:")
    sessions.store.delete("lock:{registry}:scan")
    await seeding.apply(FIRST.but(grants="password").seed)
    assert sessions.live(alice) == [False]
