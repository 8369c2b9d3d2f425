"""Many concurrent logins: parallel guesses gain nothing, and many right logins are no attack."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import httpx2
import pytest
import redis

from service.config.settings import Settings
from service.protocol.user import identify_user
from service.store.attempts import MAX_WAITING
from service.store.keys import login_key
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving, serving_worker
from tests.races.instances import CONCURRENT_REQUESTS, InstancePair, all_at_once, until_available
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    PHONE_APP,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
    assert_error,
    is_live,
    tokens_of,
)
from tests.support.loop_time import LoopTime
from tests.support.waiting import result_of, until

ALLOWED = 10
CROWD = 100
WRONG = UserCredentials(BOB.username, "not the password")


@pytest.mark.clause("decided-login-limit", "6749-4.3.2-brute-force", "6749-10.10-user-credentials-protected")
async def test_concurrent_wrong_passwords_are_checked_up_to_the_limit(
    instances: InstancePair, http: httpx2.AsyncClient
) -> None:
    for _ in range(2):
        instances.clear()

        answers = await all_at_once(
            [until_available(partial(PHONE_APP.log_in, http, WRONG)) for _ in range(CONCURRENT_REQUESTS)]
        )

        checked = [answer for answer in answers if answer.status_code == 400]
        refused = [answer for answer in answers if answer.status_code != 400]
        assert (len(checked), len(refused)) == (ALLOWED, CONCURRENT_REQUESTS - ALLOWED)
        for answer in checked:
            assert_error(answer, 400, "invalid_grant")
        for answer in refused:
            assert_error(answer, 429, "invalid_grant")
            assert 0 < int(answer.headers["retry-after"]) <= 3600


@pytest.mark.clause("decided-limit-stops-checking")
async def test_right_password_past_the_limit_is_refused(instances: InstancePair, http: httpx2.AsyncClient) -> None:
    guesses = [WRONG] * CONCURRENT_REQUESTS
    await all_at_once([until_available(partial(PHONE_APP.log_in, http, guess)) for guess in guesses])

    answers = await all_at_once([PHONE_APP.log_in(http, BOB) for _ in range(CONCURRENT_REQUESTS)])

    for answer in answers:
        assert_error(answer, 429, "invalid_grant")


@pytest.mark.clause("decided-parallel-logins-wait", "decided-only-failures-count")
@pytest.mark.parametrize("client", [PHONE_APP, WEB_SHOP])
async def test_concurrent_right_logins_succeed_without_counts(
    instances: InstancePair, http: httpx2.AsyncClient, client: OAuthClient
) -> None:
    """The test sends six times as many as the wrong ones that would be allowed."""
    answers = await all_at_once(
        [until_available(partial(client.log_in, http, ALICE)) for _ in range(CONCURRENT_REQUESTS)]
    )

    access_tokens = {tokens_of(answer)["access_token"] for answer in answers}
    assert len(access_tokens) == CONCURRENT_REQUESTS
    assert not list(instances.store.scan_iter("login:*"))
    assert not list(instances.store.scan_iter("address:*"))


@pytest.mark.clause("decided-parallel-logins-wait", "decided-password-queue-full")
@pytest.mark.single_server("how many get their turn is a matter of hashing, which Redis has no part in")
async def test_hundred_concurrent_right_logins_count_no_failure(
    instances: InstancePair, http: httpx2.AsyncClient
) -> None:
    """The number that succeeds at the first attempt depends on the machine. The others are told to try again."""
    refused: list[httpx2.Response] = []

    async def log_in() -> httpx2.Response:
        answer = await PHONE_APP.log_in(http, ALICE)
        if answer.status_code != 200:
            refused.append(answer)
        return answer

    answers = await all_at_once([until_available(log_in) for _ in range(CROWD)])

    assert {answer.status_code for answer in answers} == {200}
    for answer in refused:
        assert_error(answer, 503, "temporarily_unavailable")
        assert int(answer.headers["retry-after"]) >= 1
    assert not list(instances.store.scan_iter("login:*"))
    assert not list(instances.store.scan_iter("address:*"))


def make_eager_worker(settings: Settings, clock: Clock) -> Worker:
    """Return a worker in which waiting logins retry at once. With `held_time` no limit is reached meanwhile."""
    worker = Worker(settings, lambda: clock.offset_ms)
    worker.attempts.retry_delay_seconds = 0
    return worker


@pytest.mark.clause("decided-parallel-logins-wait")
async def test_hundred_concurrent_logins_succeed_with_enough_time(
    held_time: LoopTime, make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    """A single login is checked at a time, so that all others wait."""
    settings = make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS="1/minute")
    async with serving_worker(make_eager_worker(settings, clock)) as http:
        answers = await result_of(all_at_once([PHONE_APP.log_in(http, ALICE) for _ in range(CROWD)]))

    assert len({tokens_of(answer)["access_token"] for answer in answers}) == CROWD


@pytest.fixture
def full(held_time: LoopTime, store: redis.Redis, registry: None) -> str:
    """The login counter of Alice, which is full of pending checks."""
    counter = login_key(identify_user(ALICE.realm, ALICE.username))
    store.set("lease:" + counter, 1_000, px=60_000)
    return counter


class WaitingLogins:
    """A service in this process, and the number of logins that wait in it for room on a counter."""

    def __init__(self, worker: Worker, http: httpx2.AsyncClient) -> None:
        self.http = http
        self._worker = worker
        self._tasks: list[asyncio.Task[httpx2.Response]] = []

    def log_in(self) -> asyncio.Task[httpx2.Response]:
        """Begin a login of Alice."""
        self._tasks.append(asyncio.create_task(PHONE_APP.log_in(self.http, ALICE)))
        return self._tasks[-1]

    async def leave(self) -> None:
        """End the logins that a failed test left behind, while Redis can still release them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def count(self) -> int:
        """Return how many wait."""
        return sum(queue.length for queue in self._worker.attempts._queues.values())


@asynccontextmanager
async def waiting_at(
    settings: Settings, clock: Clock, *, max_waiting: int = MAX_WAITING
) -> AsyncIterator[WaitingLogins]:
    worker = make_eager_worker(settings, clock)
    worker.attempts.max_waiting = max_waiting
    async with serving_worker(worker) as http:
        waiting = WaitingLogins(worker, http)
        try:
            yield waiting
        finally:
            await waiting.leave()


def make_room(store: redis.Redis, counter: str) -> None:
    store.delete(counter, "lease:" + counter)


@pytest.mark.clause("decided-parallel-logins-wait", "decided-login-limit-per-address")
async def test_logins_of_one_user_do_not_block_the_address(
    make_settings: MakeSettings, clock: Clock, store: redis.Redis, full: str
) -> None:
    """A login that waits for a user's counter reserves nothing on the address. Otherwise these would fill it."""
    settings = make_settings(
        TOKEN_SERVICE_LOGIN_ATTEMPTS="1/minute", TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="3/minute"
    )
    async with waiting_at(settings, clock) as waiting:
        crowd = [waiting.log_in() for _ in range(CROWD)]
        await until(lambda: waiting.count() == CROWD)

        assert (await result_of(PHONE_APP.log_in(waiting.http, BOB))).status_code == 200
        assert not any(task.done() for task in crowd)
        make_room(store, full)
        assert {answer.status_code for answer in await result_of(asyncio.gather(*crowd))} == {200}


@pytest.mark.clause("decided-parallel-logins-wait")
async def test_logins_of_one_user_are_served_in_order(
    make_settings: MakeSettings, clock: Clock, store: redis.Redis, full: str
) -> None:
    done: list[asyncio.Task[httpx2.Response]] = []
    async with waiting_at(make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS="1/minute"), clock) as waiting:
        crowd = []
        for _ in range(15):
            crowd.append(waiting.log_in())
            crowd[-1].add_done_callback(done.append)
            await until(lambda: waiting.count() == len(crowd))
        make_room(store, full)
        answers = await result_of(asyncio.gather(*crowd))

    assert {answer.status_code for answer in answers} == {200}
    assert done == crowd


@pytest.mark.clause("decided-parallel-logins-wait", "decided-password-queue-full")
async def test_number_of_waiting_logins_per_user_is_bounded(
    make_settings: MakeSettings, clock: Clock, store: redis.Redis, full: str
) -> None:
    assert MAX_WAITING == 200
    async with waiting_at(make_settings(), clock, max_waiting=10) as waiting:
        crowd = [waiting.log_in() for _ in range(15)]
        await until(lambda: sum(task.done() for task in crowd) == 5)
        assert waiting.count() == 10
        refused = [task for task in crowd if task.done()]
        for task in refused:
            assert_error(await task, 503, "temporarily_unavailable")
            assert int((await task).headers["retry-after"]) >= 1
        assert (await result_of(PHONE_APP.log_in(waiting.http, BOB))).status_code == 200
        make_room(store, full)

        let_in = await result_of(asyncio.gather(*(task for task in crowd if task not in refused)))
        assert [answer.status_code for answer in let_in] == [200] * 10


@pytest.mark.clause("decided-sessions-per-user")
async def test_concurrent_logins_leave_as_many_sessions_as_allowed(
    make_settings: MakeSettings, clock: Clock, registry: None, store: redis.Redis
) -> None:
    settings = make_settings(TOKEN_SERVICE_SESSIONS_PER_USER="5")
    async with serving(settings, clock) as one, serving(settings, clock) as other:
        answers = await all_at_once([PHONE_APP.log_in(http, ALICE) for http in (one, other) * 20])
        bobs = tokens_of(await PHONE_APP.log_in(other, BOB))
        clock.advance(1)
        newest = tokens_of(await PHONE_APP.log_in(one, ALICE))

        live = [answer for answer in answers if is_live(store, tokens_of(answer)["access_token"])]
        assert len(live) == 4
        for tokens in (*map(tokens_of, live), newest, bobs):
            assert is_live(store, tokens["access_token"])
            assert (await PHONE_APP.refresh(other, tokens["refresh_token"])).status_code == 200
