"""Changes that Redis loses in a failover while they are being made: none is reported as done."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
import pytest
import redis

from service.protocol.user import User, identify_user
from service.redis_client.deadline import StoreUnavailable
from service.registry.editor import ChangeRefused, RegistryEditor
from service.registry.password_change import PasswordChange
from service.registry.pending_revocations import PendingRevocations
from service.registry.seed_file.reader import parse_seed
from service.store.client import StoreClient
from service.store.keys import get_kind
from service.store.registry import RegistryLock, RegistryStore
from service.store.reports.session_scan import SessionScan
from service.store.revocations import Revocations
from service.worker import Worker
from tests.conftest import MakeSettings
from tests.registry.seeds import SeedText, make_seeding
from tests.store.interruptions import InterposedConnection, Rollback, replace_master
from tests.store.sessions import Session, Sessions
from tests.support.clients_and_users import ALICE, UserCredentials

ALICE_IDENTITY = identify_user("main", ALICE.username)
CARL = UserCredentials("carl@example.org", "", "cep")
TEXT = SeedText().text.replace('example.org"}', 'example.org", default_roles: [enduser, device]}')
WITHOUT_A_ROLE = TEXT.replace("roles: [enduser, organisation]", "roles: [organisation]")
WITHOUT_A_GRANT = TEXT.replace("grant_types: [password, authorization_code,", "grant_types: [authorization_code,")
WITHOUT_A_DEFAULT_ROLE = TEXT.replace("[enduser, device]", "[enduser]")
WITHOUT_ALICE = "\n".join(line for line in TEXT.splitlines() if "alice" not in line and "phone-app" not in line)
WITHOUT_CEP = TEXT.replace("realms:\n  cep:", "# ")


class Changing:
    """The objects that change the registry, on one connection."""

    def __init__(self, redis_client: StoreClient, sessions: Sessions) -> None:
        self.registry = RegistryStore(redis_client)
        scan = SessionScan(redis_client, sessions.families)
        self.pending = PendingRevocations(self.registry, Revocations(redis_client), scan, scan_delay_seconds=0)
        self.editor = RegistryEditor(self.registry, self.pending, "somebody", lambda: None)
        self.seeding = make_seeding(redis_client)

    async def get_alice(self) -> User:
        user = await self.registry.find_user(ALICE_IDENTITY)
        assert user is not None
        return user

    async def take_role(self) -> None:
        alice = await self.get_alice()
        await self.editor.update_user(alice, msgspec.structs.replace(alice, roles=("organisation",)))

    async def change_own_password(self) -> None:
        made = await PasswordChange(self.registry, self.pending).make(await self.get_alice(), "new", address="")
        assert made is not None

    async def apply(self, text: str, *, prune: bool = False) -> None:
        await self.seeding.apply(parse_seed(text.encode()), prune=prune)


CHANGES: dict[str, Callable[[Changing], Awaitable[None]]] = {
    "disable a user": lambda changing: changing.editor.disable_user(ALICE_IDENTITY),
    "take a role": Changing.take_role,
    "delete a user": lambda changing: changing.editor.delete_user(ALICE_IDENTITY),
    "set a password": lambda changing: changing.editor.set_password(ALICE_IDENTITY, "new", keep_sessions=False),
    "change one's password": Changing.change_own_password,
    "disable a client": lambda changing: changing.editor.disable_client("phone-app"),
    "delete a client": lambda changing: changing.editor.delete_client("phone-app"),
    "seed a user": lambda changing: changing.apply(WITHOUT_A_ROLE),
    "seed a client": lambda changing: changing.apply(WITHOUT_A_GRANT),
    "seed a realm": lambda changing: changing.apply(WITHOUT_A_DEFAULT_ROLE),
    "remove a user and a client": lambda changing: changing.apply(WITHOUT_ALICE, prune=True),
    "remove a realm": lambda changing: changing.apply(WITHOUT_CEP, prune=True),
}
"""Changes that end sessions, by names. Each may be repeated."""


class LosingRedis:
    """A Redis that returns to the state at its beginning, as another master."""

    def __init__(self, store: redis.Redis) -> None:
        self._store = store
        self._rollback = Rollback(store)
        self._rollback.save()

    def begin_again(self) -> None:
        self._rollback.return_to(0)

    def lose(self, is_lost: Callable[[str], bool]) -> None:
        self._rollback.return_to(0, is_lost=is_lost)
        replace_master(self._store)


def is_no_lock(key: str) -> bool:
    """Return True for all keys but the registry's lock, which is older than the change."""
    return get_kind(key) != "lock"


def is_of_sessions(key: str) -> bool:
    return get_kind(key) in ("access", "family", "index", "revoked", "mark", "ended")


async def look(worker: Worker, sessions: Sessions, started: list[Session]) -> list[object]:
    """Return the registry as far as it changes, and whether each session is live."""
    user = await worker.registry.find_user(ALICE_IDENTITY)
    found = user and msgspec.structs.replace(user, revision="")
    client, realm = await worker.registry.find_client("phone-app"), await worker.registry.find_realm("cep")
    return [found, client, realm and realm.default_roles, [sessions.live(session) for session in started]]


@pytest.mark.clause("decided-lost-change-is-not-reported", "decided-seed-ends-sessions")
@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_that_a_failover_loses_is_an_outage(
    worker: Worker, sessions: Sessions, store: redis.Redis, make_settings: MakeSettings, name: str
) -> None:
    """After each call Redis loses all that the change wrote. After an outage the change is repeated."""
    await make_seeding(worker.redis).apply(parse_seed(TEXT.encode()))
    started = [await sessions.start(), await sessions.start(CARL, scope="realm:cep role:device")]
    losing = LosingRedis(store)

    async def change(lost_at: int) -> int:
        """Change it, and repeat that after an outage. Returns the number of calls of the first attempt."""

        async def lose(number: int) -> None:
            if number == lost_at:
                losing.lose(is_no_lock)

        losing.begin_again()
        connection = InterposedConnection(make_settings(), after=lose)
        try:
            await CHANGES[name](Changing(connection, sessions))
        except StoreUnavailable:
            with suppress(ChangeRefused):  # the user or the client may be deleted already
                await CHANGES[name](Changing(worker.redis, sessions))
        await connection.close()
        return connection.calls

    calls = await change(lost_at=-1)
    expected = await look(worker, sessions, started)
    assert expected[-1] != [[True], [True]]
    for lost_at in range(calls):
        await change(lost_at)
        assert await look(worker, sessions, started) == expected, lost_at
        assert not await worker.registry.has_pending()


class LosingLock(RegistryLock):
    """A lock of the registry before whose renewals Redis loses what happened to sessions."""

    losing: LosingRedis

    async def renew(self) -> None:
        self.losing.lose(is_of_sessions)
        await super().renew()


@pytest.mark.clause("decided-lost-change-is-not-reported")
@pytest.mark.parametrize("runs_all", [True, False])
async def test_a_revocation_that_a_failover_loses_stays_pending(
    worker: Worker, sessions: Sessions, store: redis.Redis, runs_all: bool
) -> None:
    await make_seeding(worker.redis).apply(parse_seed(TEXT.encode()))
    session, pending = await sessions.start(), worker.pending_revocations
    await worker.registry.add_pending_users([ALICE_IDENTITY])
    lock = LosingLock(worker.redis, lambda: None, None)
    lock.losing = LosingRedis(store)
    with pytest.raises(StoreUnavailable):
        async with lock:
            await (pending.run_all(lock) if runs_all else pending.run_revocation_of(ALICE_IDENTITY, lock))

    assert sessions.live(session) == [True]
    assert await worker.registry.has_pending()
    async with worker.registry.make_lock() as next_lock:
        await pending.run_all(next_lock)
    assert sessions.live(session) == [False]
    assert not await worker.registry.has_pending()
