"""Floods of logins from one network, and guesses at users with dear hashes, leave others their logins."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from functools import partial

import httpx2
import msgspec
import pytest
from argon2 import PasswordHasher

from service.crypto.hashing_pool import MAX_WAIT_SECONDS, TRIM_SECONDS, HashingPool
from service.protocol.user import User
from service.system.process import LEAST_PRIORITY, LOWER_BY, count_usable_cores
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving_worker
from tests.support.clients_and_users import (
    ALICE,
    BACK_OFFICE,
    BOB,
    PHONE_APP,
    TOKEN,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
    assert_error,
    login_form,
    put_user,
)
from tests.support.invalidations import await_invalidations
from tests.support.loop_time import LoopTime
from tests.support.metrics_scrape import Scrape
from tests.support.waiting import result_of, until, until_true

PROXY = "127.0.0.1"
FLOOD = 100

MOVED = UserCredentials("moved@example.com", "a password")
DEAR_HASH = PasswordHasher(memory_cost=20 * 1024, time_cost=1, parallelism=1).hash(MOVED.password)


class Flooded:
    """A service at which a test sends logins from many addresses, and holds the hashing threads."""

    def __init__(self, worker: Worker, http: httpx2.AsyncClient) -> None:
        self.worker = worker
        self.http = http
        self._gates: list[threading.Event] = []
        self._tasks: list[asyncio.Task[object]] = []

    async def hold(self, pool: HashingPool, threads: int, work: float = 1) -> threading.Event:
        """Hold so many threads of the pool until the event is set."""
        gate = threading.Event()
        self._gates.append(gate)
        for number in range(threads):
            held = pool.run(gate.wait, network=f"{work} {number}", work=work)
            self._tasks.append(asyncio.create_task(held))
        await asyncio.sleep(0)
        return gate

    async def let_go(self) -> None:
        """Release the threads, and wait until all that was begun is done."""
        for gate in self._gates:
            gate.set()
        await result_of(asyncio.gather(*self._tasks, return_exceptions=True))

    def log_in(self, credentials: UserCredentials, address: str) -> asyncio.Task[httpx2.Response]:
        form = PHONE_APP.credentials | login_form(credentials)
        task = asyncio.create_task(self.http.post(TOKEN, data=form, headers={"X-Forwarded-For": address}))
        self._tasks.append(task)
        return task

    def set_password(self, address: str) -> asyncio.Task[httpx2.Response]:
        request = put_user(self.http, BOB.username, {"password": "a password"}, headers={"X-Forwarded-For": address})
        self._tasks.append(task := asyncio.create_task(request))
        return task

    async def until_waiting(self, pool: str, count: int) -> None:
        """Wait until so many checks of the pool wait or run."""

        async def are_waiting() -> bool:
            metrics = Scrape((await self.http.get("/metrics")).text)
            return metrics.sum("token_service_hashing_checks", pool=pool) == count

        await until_true(are_waiting, f"{count} checks of the pool {pool}")


@pytest.fixture
async def flooded(
    held_time: LoopTime, make_settings: MakeSettings, clock: Clock, registry: None
) -> AsyncIterator[Flooded]:
    limits = {"TOKEN_SERVICE_TRUSTED_PROXIES": PROXY, "TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS": "10000/minute"}
    worker = Worker(make_settings(**limits), lambda: clock.offset_ms)
    async with serving_worker(worker, address=PROXY) as http:
        flooded = Flooded(worker, http)
        yield flooded
        await flooded.let_go()


@pytest.mark.clause("decided-fair-hashing-queue")
async def test_login_flood_affects_only_its_own_network(flooded: Flooded) -> None:
    """Each guess comes from its own /64 within one /48, and waits already when the users log in."""
    cores = count_usable_cores()
    before = await flooded.hold(flooded.worker.passwords, cores)
    guesses = [UserCredentials(f"user-{number}@example.com", "x") for number in range(FLOOD)]
    flood = [flooded.log_in(guess, f"2001:db8:1:{number:x}::1") for number, guess in enumerate(guesses)]
    await flooded.until_waiting("password", cores + FLOOD)
    # One of two users mistypes the name.
    names = (ALICE, UserCredentials("alise@example.com", ALICE.password))
    users = [flooded.log_in(names[number % 2], f"203.0.113.{number}") for number in range(6)]
    # The threads are held again after the first turn of each network, and before the second.
    await flooded.hold(flooded.worker.passwords, cores, work=1.5)
    await flooded.until_waiting("password", 2 * cores + FLOOD + 6)
    before.set()

    assert [(await result_of(user)).status_code for user in users] == [200, 400] * 3
    assert sum(guess.done() for guess in flood) <= 1
    await flooded.let_go()
    assert {(await result_of(guess)).status_code for guess in flood} == {400}


@pytest.mark.clause("decided-fair-hashing-queue")
async def test_programs_addresses_share_one_turn(flooded: Flooded) -> None:
    cores = count_usable_cores()
    before = await flooded.hold(flooded.worker.passwords, cores)
    changes = [flooded.set_password(f"198.51.100.{number}") for number in range(20)]
    await flooded.until_waiting("password", cores + 20)
    user = flooded.log_in(ALICE, "203.0.113.7")
    # The threads are held again after the first turn of each caller, and before the second.
    await flooded.hold(flooded.worker.passwords, cores, work=1.5)
    await flooded.until_waiting("password", 2 * cores + 20 + 1)
    before.set()

    assert (await result_of(user)).status_code == 200
    await flooded.until_waiting("password", cores + 20 - 1)
    for change in changes:
        change.cancel()


@pytest.mark.clause("decided-managed-users-roles")
async def test_a_program_may_be_disabled_while_its_hash_waits(flooded: Flooded) -> None:
    clients, cores = flooded.worker.registry.clients, count_usable_cores()
    client = (await clients.list_all())[BACK_OFFICE.client_id]
    await flooded.hold(flooded.worker.passwords, cores)
    change = flooded.set_password("198.51.100.1")
    await flooded.until_waiting("password", cores + 1)
    await clients.put(msgspec.structs.replace(client, disabled=True), client)
    await await_invalidations(flooded.worker)
    await flooded.let_go()

    assert_error(await change, 401, "invalid_client")
    assert (await result_of(flooded.log_in(BOB, "203.0.113.7"))).status_code == 200


@pytest.mark.clause("decided-foreign-hashes-apart", "decided-password-queue-full")
async def test_guesses_at_dear_hashes_leave_other_logins_alone(flooded: Flooded, held_time: LoopTime) -> None:
    worker = flooded.worker
    await worker.registry.users.put(
        User(realm="main", username=MOVED.username, password_hash=DEAR_HASH, roles=("enduser",))
    )
    await flooded.hold(worker.foreign_hashes, 1)
    guesses = [flooded.log_in(MOVED, f"198.51.100.{number}") for number in range(6)]
    await flooded.until_waiting("foreign", 7)

    assert (await result_of(flooded.log_in(ALICE, "203.0.113.7"))).status_code == 200
    assert (await result_of(WEB_SHOP.log_in(flooded.http, ALICE))).status_code == 200
    assert not any(guess.done() for guess in guesses)
    await held_time.advance_in_steps(MAX_WAIT_SECONDS)
    for guess in guesses:
        refusal = await result_of(guess)
        assert_error(refusal, 503, "temporarily_unavailable")
        assert refusal.headers["retry-after"] == "1"
    await flooded.let_go()
    assert (await result_of(flooded.log_in(MOVED, "203.0.113.7"))).status_code == 200


@pytest.mark.clause("decided-foreign-hashes-apart")
async def test_dear_secrets_and_passwords_share_one_slow_thread(flooded: Flooded) -> None:
    """The thread has a lower priority than others, because argon2 may start sixteen threads of its own."""
    worker = flooded.worker
    shop = (await worker.registry.clients.list_all())[WEB_SHOP.client_id]
    dear = msgspec.structs.replace(shop, client_secret_hash=DEAR_HASH)
    await worker.registry.clients.put(dear, shop)
    await flooded.hold(worker.foreign_hashes, 1)
    login = asyncio.create_task(OAuthClient(WEB_SHOP.client_id, MOVED.password).log_in(flooded.http, ALICE))
    await flooded.until_waiting("foreign", 2)

    assert not login.done()
    await flooded.let_go()
    assert (await result_of(login)).status_code == 200
    get_niceness = partial(os.getpriority, os.PRIO_PROCESS, 0)
    assert await worker.foreign_hashes.run(get_niceness) == min(get_niceness() + LOWER_BY + 5, LEAST_PRIORITY)


async def test_memory_of_hashes_is_returned_from_time_to_time(flooded: Flooded, held_time: LoopTime) -> None:
    await until(lambda: held_time.is_due_in(TRIM_SECONDS), "the wait for the next trimming")
