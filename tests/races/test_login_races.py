"""Many logins at once: guessing in parallel gains nothing, and many right logins are no attack."""

from __future__ import annotations

from functools import partial

import httpx2
import pytest

from tests.cast import ALICE, BOB, PHONE_APP, WEB_SHOP, App, Person, assert_error, tokens_of
from tests.races.arena import CONTENDERS, Arena, all_at_once, patiently

ALLOWED = 10
WRONG = Person(BOB.username, "not the password")


@pytest.mark.clause("decided-login-limit", "6749-4.3.2-brute-force", "6749-10.10-user-credentials-protected")
async def test_of_many_wrong_passwords_at_once_exactly_the_allowed_number_is_checked(
    arena: Arena, http: httpx2.AsyncClient
) -> None:
    for _ in range(2):
        arena.clear()

        answers = await all_at_once([patiently(partial(PHONE_APP.log_in, http, WRONG)) for _ in range(CONTENDERS)])

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
    await all_at_once([patiently(partial(PHONE_APP.log_in, http, guess)) for guess in guesses])

    answers = await all_at_once([PHONE_APP.log_in(http, BOB) for _ in range(CONTENDERS)])

    for answer in answers:
        assert_error(answer, 429, "invalid_grant")


@pytest.mark.clause("decided-parallel-logins-wait", "decided-only-failures-count")
@pytest.mark.parametrize("app", [PHONE_APP, WEB_SHOP])
async def test_many_right_logins_at_once_all_succeed_and_leave_no_trace_in_the_counters(
    arena: Arena, http: httpx2.AsyncClient, app: App
) -> None:
    """They are six times as many as wrong ones would be allowed."""
    answers = await all_at_once([patiently(partial(app.log_in, http, ALICE)) for _ in range(CONTENDERS)])

    access_tokens = {tokens_of(answer)["access_token"] for answer in answers}
    assert len(access_tokens) == CONTENDERS
    assert not list(arena.store.scan_iter("login:*"))
    assert not list(arena.store.scan_iter("address:*"))
