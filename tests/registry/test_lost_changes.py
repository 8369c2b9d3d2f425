"""Changes that Redis loses in a failover while they are being made: none is reported as done."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
import pytest
import redis

from service.protocol.client import Client
from service.protocol.user import User, identify_user
from service.redis_client.deadline import StoreUnavailable
from service.registry.editor import ChangeRefused, RegistryEditor
from service.registry.password_change import PasswordChange
from service.registry.pending_revocations import PendingRevocations
from service.store.client import StoreClient
from service.store.keys import registry_key
from service.store.registry import RegistryStore
from service.store.reports.session_scan import SessionScan
from service.store.revocations import Revocations
from service.worker import Worker
from tests.conftest import MakeSettings
from tests.registry.seeds import SeedText, make_seeding
from tests.store.interruptions import InterposedConnection, Rollback, replace_master
from tests.store.sessions import Sessions
from tests.support.clients_and_users import ALICE

ALICE_IDENTITY = identify_user("main", ALICE.username)
BEFORE = SeedText()
AFTER = BEFORE.but(grants="authorization_code", roles="organisation")


class Change:
    """A change of the registry that ends Alice's session, and whether it is made."""

    def __init__(self, redis_client: StoreClient, sessions: Sessions) -> None:
        self.registry = RegistryStore(redis_client)
        scan = SessionScan(redis_client, sessions.families)
        self.pending = PendingRevocations(self.registry, Revocations(redis_client), scan, scan_delay_seconds=0)
        self.editor = RegistryEditor(self.registry, self.pending, "somebody", lambda: None)
        self.redis_client = redis_client

    async def get_alice(self) -> User:
        user = await self.registry.find_user(ALICE_IDENTITY)
        assert user is not None
        return user

    async def get_client(self) -> Client:
        client = await self.registry.find_client("phone-app")
        assert client is not None
        return client

    async def disable_user(self) -> None:
        await self.editor.disable_user((await self.get_alice()).identity)

    async def take_role(self) -> None:
        alice = await self.get_alice()
        await self.editor.update_user(alice, msgspec.structs.replace(alice, roles=("organisation",)))

    async def delete_user(self) -> None:
        await self.editor.delete_user(ALICE_IDENTITY)

    async def set_password(self) -> None:
        await self.editor.set_password((await self.get_alice()).identity, "new", keep_sessions=False)

    async def change_own_password(self) -> None:
        made = await PasswordChange(self.registry, self.pending).make(await self.get_alice(), "new", address="")
        assert made is not None

    async def disable_client(self) -> None:
        await self.editor.disable_client("phone-app")

    async def delete_client(self) -> None:
        await self.editor.delete_client("phone-app")

    async def apply_seed(self) -> None:
        await make_seeding(self.redis_client).apply(AFTER.seed)

    async def prune_seed(self) -> None:
        await make_seeding(self.redis_client).apply(AFTER.seed, prune=True)


async def read_registry(worker: Worker) -> list[object]:
    return [await worker.registry.find_user(ALICE_IDENTITY), await worker.registry.find_client("phone-app")]


CHANGES: dict[str, Callable[[Change], Awaitable[None]]] = {
    name: getattr(Change, name)
    for name in (
        *("disable_user", "take_role", "delete_user", "set_password", "change_own_password"),
        *("disable_client", "delete_client", "apply_seed", "prune_seed"),
    )
}


class LosingRedis:
    """A Redis that returns to the state at its beginning as another master.

    The registry's lock stays, as it is older than the change.
    """

    def __init__(self, store: redis.Redis) -> None:
        self._store = store
        self._rollback = Rollback(store)
        self._rollback.save()

    def begin_again(self) -> None:
        self._rollback.return_to(0)

    def lose_all(self) -> None:
        lock = self._store.get(registry_key("lock"))
        self._rollback.return_to(0)
        if lock is not None:
            self._store.set(registry_key("lock"), str(lock), px=10_000)
        replace_master(self._store)


@pytest.mark.clause("decided-lost-change-is-not-reported", "decided-seed-ends-sessions")
@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_that_a_failover_loses_is_an_outage(
    worker: Worker, sessions: Sessions, store: redis.Redis, make_settings: MakeSettings, name: str
) -> None:
    """Before each later call Redis loses all that the change wrote. After an outage the change is repeated."""
    await make_seeding(worker.redis).apply(BEFORE.seed)
    before, session = await read_registry(worker), await sessions.start()
    losing = LosingRedis(store)
    calls, lost_at, outages = 2, 1, 0
    while lost_at < calls:

        async def lose(number: int, lost_at: int = lost_at) -> None:
            if number == lost_at:
                losing.lose_all()

        losing.begin_again()
        connection = InterposedConnection(make_settings(), lose)
        try:
            await CHANGES[name](Change(connection, sessions))
        except StoreUnavailable:
            outages += 1
            with suppress(ChangeRefused):  # the user or the client may be deleted already
                await CHANGES[name](Change(worker.redis, sessions))
        assert await read_registry(worker) != before, lost_at
        assert not any(sessions.live(session)), lost_at
        assert not await worker.registry.has_pending()
        calls, lost_at = connection.calls, lost_at + 1
        await connection.close()

    assert outages >= 2
