"""Many logins at once: guessing in parallel gains nothing, and many right logins are no attack."""

from __future__ import annotations

import asyncio
from functools import partial

import anyio
import httpx2
import pytest
import redis

from service.protocol.user import identify_user
from service.store import attempts, deadline, links
from service.store.keys import login_key
from tests.cast import ALICE, BOB, PHONE_APP, WEB_SHOP, App, Person, assert_error, tokens_of
from tests.conftest import Clock, MakeSettings, serving
from tests.races.arena import CONTENDERS, Arena, all_at_once
from tests.waiting import until_served

ALLOWED = 10
CROWD = 100
WRONG = Person(BOB.username, "not the password")


@pytest.mark.clause("decided-login-limit", "6749-4.3.2-brute-force", "6749-10.10-user-credentials-protected")
async def test_of_many_wrong_passwords_at_once_exactly_the_allowed_number_is_checked(
    arena: Arena, http: httpx2.AsyncClient
) -> None:
    for _ in range(2):
        arena.clear()

        answers = await all_at_once([until_served(partial(PHONE_APP.log_in, http, WRONG)) for _ in range(CONTENDERS)])

        checked = [answer for answer in answers if answer.status_code == 400]
        refused = [answer for answer in answers if answer.status_code != 400]
        assert (len(checked), len(refused)) == (ALLOWED, CONTENDERS - ALLOWED)
        for answer in checked:
            assert_error(answer, 400, "invalid_grant")
        for answer in refused:
            assert_error(answer, 429, "invalid_grant")
            assert 0 < int(answer.headers["retry-after"]) <= 60


@pytest.mark.clause("decided-limit-stops-checking")
async def test_past_the_limit_the_right_password_among_many_is_refused_like_the_others(
    arena: Arena, http: httpx2.AsyncClient
) -> None:
    guesses = [WRONG] * CONTENDERS
    await all_at_once([until_served(partial(PHONE_APP.log_in, http, guess)) for guess in guesses])

    answers = await all_at_once([PHONE_APP.log_in(http, BOB) for _ in range(CONTENDERS)])

    for answer in answers:
        assert_error(answer, 429, "invalid_grant")


@pytest.mark.clause("decided-parallel-logins-wait", "decided-only-failures-count")
@pytest.mark.parametrize("app", [PHONE_APP, WEB_SHOP])
async def test_many_right_logins_at_once_all_succeed_and_leave_no_trace_in_the_counters(
    arena: Arena, http: httpx2.AsyncClient, app: App
) -> None:
    """They are six times as many as wrong ones would be allowed."""
    answers = await all_at_once([until_served(partial(app.log_in, http, ALICE)) for _ in range(CONTENDERS)])

    access_tokens = {tokens_of(answer)["access_token"] for answer in answers}
    assert len(access_tokens) == CONTENDERS
    assert not list(arena.store.scan_iter("login:*"))
    assert not list(arena.store.scan_iter("address:*"))


@pytest.mark.clause("decided-parallel-logins-wait", "decided-password-queue-full")
@pytest.mark.single_server("how many get their turn is a matter of hashing, which Redis has no part in")
async def test_of_a_hundred_right_logins_at_once_none_counts_as_guessing(
    arena: Arena, http: httpx2.AsyncClient
) -> None:
    """How many get their turn in time depends on the speed of the machine. In the next test there is time for all."""
    answers = await all_at_once([PHONE_APP.log_in(http, ALICE) for _ in range(CROWD)])

    busy = [answer for answer in answers if answer.status_code != 200]
    for answer in busy:
        assert_error(answer, 503, "temporarily_unavailable")
        assert int(answer.headers["retry-after"]) >= 1
    assert len(busy) < len(answers)
    assert not list(arena.store.scan_iter("login:*"))
    assert not list(arena.store.scan_iter("address:*"))


@pytest.mark.clause("decided-parallel-logins-wait")
async def test_of_a_hundred_right_logins_at_once_all_succeed_where_there_is_time_for_all(
    make_settings: MakeSettings, clock: Clock, registry: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(deadline, "DEADLINE_SECONDS", 60.0)
    async with serving(make_settings(), clock) as http:
        answers = await all_at_once([PHONE_APP.log_in(http, ALICE) for _ in range(CROWD)])

    assert len({tokens_of(answer)["access_token"] for answer in answers}) == CROWD


@pytest.mark.clause("decided-parallel-logins-wait", "decided-login-limit-per-address")
@pytest.mark.long
async def test_a_crowd_of_logins_of_one_user_does_not_hold_up_others_at_its_address(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    """Who waits for room of a user takes up none of the address, or the crowd here would take up all of it."""
    settings = make_settings(
        TOKEN_SERVICE_LOGIN_ATTEMPTS="1/minute", TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="3/minute"
    )
    async with serving(settings, clock) as http:
        crowd = [asyncio.create_task(PHONE_APP.log_in(http, ALICE)) for _ in range(CROWD)]
        await asyncio.wait(crowd, return_when=asyncio.FIRST_COMPLETED)

        answer = await PHONE_APP.log_in(http, BOB)

        assert answer.status_code == 200
        assert sum(task.done() for task in crowd) < CROWD / 4
        assert {(await task).status_code for task in crowd} <= {200, 503}


@pytest.fixture
def held(store: redis.Redis, registry: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Alice's counter, with as many checks under way as may be; whoever is registered is known without asking."""
    monkeypatch.setattr(links, "TRUSTED_SECONDS", 60.0)
    counter = login_key(identify_user(ALICE.realm, ALICE.username))
    store.set("lease:" + counter, 1_000, px=60_000)
    return counter


@pytest.mark.clause("decided-parallel-logins-wait")
async def test_logins_of_one_user_are_let_in_in_the_order_of_their_arrival(
    make_settings: MakeSettings, clock: Clock, store: redis.Redis, held: str
) -> None:
    done: list[int] = []

    async def log_in(number: int) -> None:
        tokens_of(await PHONE_APP.log_in(http, ALICE))
        done.append(number)

    async with serving(make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS="1/minute"), clock) as http:
        assert (await PHONE_APP.log_in(http, BOB)).status_code == 200
        async with anyio.create_task_group() as tasks:
            for number in range(15):
                tasks.start_soon(log_in, number)
                await asyncio.sleep(0)  # the request gets a task of its own
                await anyio.wait_all_tasks_blocked()
            store.delete(held, "lease:" + held)

    assert done == list(range(15))


@pytest.mark.clause("decided-parallel-logins-wait", "decided-password-queue-full")
async def test_no_more_logins_wait_for_one_user_than_may(
    make_settings: MakeSettings, clock: Clock, store: redis.Redis, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attempts.MOST_WAITING == 200
    monkeypatch.setattr(attempts, "MOST_WAITING", 10)
    async with serving(make_settings(), clock) as http:
        assert (await PHONE_APP.log_in(http, BOB)).status_code == 200
        crowd = {asyncio.create_task(PHONE_APP.log_in(http, ALICE)) for _ in range(15)}
        refused: set[asyncio.Task[httpx2.Response]] = set()
        while len(refused) < 5:
            done, _ = await asyncio.wait(crowd - refused, return_when=asyncio.FIRST_COMPLETED)
            refused |= done
        for task in refused:
            assert_error(await task, 503, "temporarily_unavailable")
            assert int((await task).headers["retry-after"]) >= 1
        assert (await PHONE_APP.log_in(http, BOB)).status_code == 200
        store.delete(held, "lease:" + held)

        assert [(await task).status_code for task in crowd - refused] == [200] * 10
