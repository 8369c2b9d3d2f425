"""An edited entry ends the sessions that need what it takes away, and no others."""

import asyncio

import msgspec
import pytest

from service.protocol.user import identify_user
from service.redis_client.deadline import DEADLINE_SECONDS
from service.redis_client.managed_connection import TRUSTED_SECONDS
from service.registry.editor import RegistryEditor
from service.registry.pending_revocations import SCAN_DELAY_SECONDS
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.report import Outcome
from service.worker import Worker
from tests.registry.seeds import OTHER_HASH, SeedText, make_seeding
from tests.store.sessions import ENDUSER, Session, Sessions
from tests.support.clients_and_users import ALICE, BOB
from tests.support.loop_time import LoopTime
from tests.support.waiting import result_of, until

PROVIDER = "realm:main role:organisation"
MOMENT_SECONDS = 0.01

pytestmark = pytest.mark.clause("decided-seed-ends-sessions")


class SeededSessions:
    """Sessions of every kind under the first seed."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.by_name: dict[str, Session] = {}

    async def start(self) -> None:
        start = self._sessions.start
        self.by_name["alice, phone, enduser"] = await start(ALICE)
        self.by_name["alice, phone, organisation"] = await start(ALICE, scope=PROVIDER)
        self.by_name["alice, shop"] = await start(ALICE, "web-shop")
        self.by_name["bob, phone, enduser"] = await start(BOB)
        _, self.by_name["bob, phone, by code"] = await self._sessions.redeem(await self._sessions.issue_code(BOB), BOB)

    @property
    def ended(self) -> set[str]:
        """Return the names of the sessions without a family and an access token."""
        return {
            name
            for name, session in self.by_name.items()
            if not self._sessions.record(session) and not any(self._sessions.live(session))
        }

    @property
    def live(self) -> set[str]:
        return {name for name, session in self.by_name.items() if all(self._sessions.live(session))}


ALICES = {"alice, phone, enduser", "alice, phone, organisation", "alice, shop"}
BY_PASSWORD = {"alice, phone, enduser", "alice, phone, organisation", "bob, phone, enduser"}
ON_PHONE = BY_PASSWORD | {"bob, phone, by code"}


def name_case(value: object) -> str:
    """Return the same name in every run: a set has no order, and a random hash is no name."""
    if isinstance(value, set):
        return ", ".join(sorted(value)) or "none"
    return str(value).replace(OTHER_HASH, "another")


@pytest.mark.clause("decided-user-change-ends-tokens", "decided-ended-families")
@pytest.mark.parametrize(
    ("changes", "ended", "reason"),
    [
        ({"roles": "enduser, organisation, admin"}, set(), ""),
        ({"secret_hash": OTHER_HASH}, set(), ""),
        ({"scope": "realm:main role:enduser role:organisation role:admin"}, set(), ""),
        ({"roles": "enduser"}, ALICES, "role_removed"),
        ({"password_hash": OTHER_HASH}, ALICES, "password_set"),
        ({"scope": "realm:main role:enduser"}, {"alice, phone, organisation"}, "client_changed"),
        ({"grants": "authorization_code, refresh_token"}, BY_PASSWORD, "client_changed"),
        ({"grants": "password, refresh_token"}, {"bob, phone, by code"}, "client_changed"),
        ({"grants": "password, authorization_code"}, ON_PHONE, "client_changed"),
    ],
    ids=name_case,
)
async def test_exactly_the_sessions_that_rested_on_it_end(
    sessions: Sessions, seeding: Seeding, changes: dict[str, str], ended: set[str], reason: str
) -> None:
    await seeding.apply(SeedText().seed)
    started = SeededSessions(sessions)
    await started.start()
    await seeding.apply(SeedText().but(**changes).seed)

    assert started.ended == ended
    assert started.live == set(started.by_name) - ended
    assert {sessions.tombstone(started.by_name[name])["reason"] for name in ended} == ({reason} if ended else set())


def test_sweep_waits_for_requests_with_the_old_registration() -> None:
    assert SCAN_DELAY_SECONDS > TRUSTED_SECONDS + DEADLINE_SECONDS


async def narrow_until_the_pause(worker: Worker, held_time: LoopTime) -> asyncio.Task[Outcome]:
    """Apply a seed that takes a scope away, up to the pause before the second scan of sessions."""
    seeding = make_seeding(worker.redis, scan_delay_seconds=SCAN_DELAY_SECONDS)
    await seeding.apply(SeedText().seed)
    applying = asyncio.create_task(seeding.apply(SeedText().but(scope=ENDUSER).seed))
    await until(lambda: held_time.is_due_in(SCAN_DELAY_SECONDS), "the pause before the second scan")
    return applying


async def test_narrowing_a_client_ends_logins_in_progress(
    sessions: Sessions, worker: Worker, held_time: LoopTime
) -> None:
    """A worker that still caches the old registration issues tokens until the sweep begins."""
    applying = await narrow_until_the_pause(worker, held_time)
    late = await sessions.start(scope=PROVIDER)
    held_time.advance(SCAN_DELAY_SECONDS - MOMENT_SECONDS)
    await held_time.advance_in_steps(0)
    assert sessions.live(late) == [True]
    assert not applying.done()

    held_time.advance(MOMENT_SECONDS)
    await until(applying.done, "the sweep")
    await applying

    assert sessions.live(late) == [False]


async def test_console_changes_wait_for_no_scan_of_sessions(
    sessions: Sessions, worker: Worker, held_time: LoopTime
) -> None:
    applying = await narrow_until_the_pause(worker, held_time)
    alice = await sessions.start(scope=PROVIDER)
    editor = RegistryEditor(worker.registry, worker.pending_revocations, {"actor": "somebody", "reason": "cli"})
    bob = identify_user("main", BOB.username)
    await result_of(editor.change_user(bob, lambda user: msgspec.structs.replace(user, disabled=True)))

    assert not applying.done()
    held_time.advance(SCAN_DELAY_SECONDS)
    await until(applying.done, "the second scan")
    assert sessions.live(alice) == [False]
    assert not await worker.registry.has_pending()


async def test_a_change_during_a_scan_is_scanned_for_again(
    sessions: Sessions, worker: Worker, held_time: LoopTime
) -> None:
    """The process that made the second change died before its own scan."""
    applying = await narrow_until_the_pause(worker, held_time)
    client = await worker.registry.clients.find("phone-app")
    assert client is not None
    await worker.registry.clients.put(msgspec.structs.replace(client, grant_types=("password",)), client)
    held_time.advance(SCAN_DELAY_SECONDS)
    await until(applying.done, "the second scan")
    late = await sessions.start(scope=ENDUSER)
    await worker.pending_revocations.run_all()

    assert sessions.live(late) == [False]
