"""Guessing of passwords over HTTP: counted per user and address, per user, and per address."""

from dataclasses import replace

import httpx2
import pytest

from service.protocol.user import identify_user
from service.worker import Worker
from tests.conftest import SECRET_KEY, Clock, MakeSettings, serving
from tests.spec.wrong_logins import UNKNOWN_USER, WRONG_ALICE
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, WEB_SHOP, UserCredentials, assert_error


async def fail(http: httpx2.AsyncClient, times: int, credentials: UserCredentials = WRONG_ALICE) -> None:
    for _ in range(times):
        assert_error(await PHONE_APP.log_in(http, credentials), 400, "invalid_grant")


def assert_throttled(response: httpx2.Response, most_seconds: int = 60) -> None:
    assert_error(response, 429, "invalid_grant")
    assert 1 <= int(response.headers["retry-after"]) <= most_seconds


@pytest.mark.clause(
    "decided-login-limit",
    "6749-4.3.2-brute-force",
    "6749-10.10-user-credentials-protected",
    "6819-4.4.3.6-password-guessed",
)
@pytest.mark.clause("decided-limit-stops-checking", "6819-5.1.4.2.4-slowed-guessing", "decided-error-statuses")
async def test_eleventh_password_in_a_minute_is_refused(http: httpx2.AsyncClient, clock: Clock) -> None:
    await fail(http, 10)

    assert_throttled(await PHONE_APP.log_in(http, WRONG_ALICE))
    assert_throttled(await PHONE_APP.log_in(http, ALICE))
    assert_throttled(await WEB_SHOP.log_in(http, ALICE))
    clock.advance(60)
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200


@pytest.mark.clause("decided-limit-stops-checking")
async def test_refused_guesses_do_not_lengthen_the_window(http: httpx2.AsyncClient, clock: Clock) -> None:
    await fail(http, 10)
    clock.advance(50)
    for _ in range(5):
        assert_throttled(await PHONE_APP.log_in(http, WRONG_ALICE))
    clock.advance(10)

    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200


@pytest.mark.clause("decided-login-limit")
async def test_the_same_user_at_another_address_is_not_affected(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    async with (
        serving(make_settings(), clock, address="198.51.100.1") as theirs,
        serving(make_settings(), clock, address="198.51.100.2") as ours,
    ):
        await fail(theirs, 10)

        assert_throttled(await PHONE_APP.log_in(theirs, ALICE))
        assert (await PHONE_APP.log_in(ours, ALICE)).status_code == 200


@pytest.mark.clause("decided-login-limit", "decided-callers-hidden", "decided-secret-key-rotation")
async def test_guesses_count_for_each_key_while_keys_rotate(
    make_settings: MakeSettings, clock: Clock, worker: Worker
) -> None:
    next_key = "the key of tomorrow of 32 bytes or more: a long one"
    for keys, left in ((SECRET_KEY, 10), (f"{SECRET_KEY},{next_key}", 0), (f"{next_key},{SECRET_KEY}", 10)):
        async with serving(make_settings(TOKEN_SERVICE_SECRET_KEY=keys), clock) as http:
            await fail(http, left)
            assert_throttled(await PHONE_APP.log_in(http, ALICE))

    found = await worker.attempts.list_of_user(identify_user("main", ALICE.username))
    of_address = ("203.0.113.7", 10, 10)
    assert [each[:3] for each in found] == [of_address, of_address, ("", 20, 100)]


@pytest.mark.clause("decided-login-limit", "decided-user-names-one-form")
async def test_spellings_of_a_user_name_share_a_counter(http: httpx2.AsyncClient) -> None:
    await fail(http, 5, replace(WRONG_ALICE, username="ALICE@example.com"))
    await fail(http, 5)

    assert_throttled(await PHONE_APP.log_in(http, replace(ALICE, username="Alice@Example.Com")))


@pytest.mark.clause("decided-login-limit-per-user", "6819-5.1.4.2.3-account-lock")
async def test_guesses_from_many_addresses_are_counted_per_user(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    settings = make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER="3/hour")
    for number in range(3):
        async with serving(settings, clock, address=f"198.51.100.{number}") as http:
            await fail(http, 1)

    async with serving(settings, clock, address="203.0.113.200") as http:
        assert_throttled(await PHONE_APP.log_in(http, ALICE), most_seconds=3600)
        assert (await PHONE_APP.log_in(http, BOB)).status_code == 200
        clock.advance(3600)
        assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200


@pytest.mark.clause("decided-login-limit-per-address", "decided-login-limit-unknown-users")
async def test_guesses_for_many_users_are_counted_per_address(http: httpx2.AsyncClient, clock: Clock) -> None:
    for number in range(100):
        await fail(http, 1, UserCredentials(f"user{number}@example.com", "wrong"))

    assert_throttled(await PHONE_APP.log_in(http, ALICE))
    clock.advance(60)
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200


@pytest.mark.clause("decided-login-limit-per-address")
async def test_exhausted_address_does_not_count_against_the_user(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    settings = make_settings(
        TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="1/minute", TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER="2/minute"
    )
    async with serving(settings, clock, address="198.51.100.1") as http:
        await fail(http, 1)
        for _ in range(5):
            assert_throttled(await PHONE_APP.log_in(http, WRONG_ALICE))

    async with serving(settings, clock, address="198.51.100.2") as http:
        assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200


@pytest.mark.clause("decided-login-limit-unknown-users", "decided-unknown-user-costs-the-same")
async def test_unknown_user_is_throttled_like_a_known_one(http: httpx2.AsyncClient) -> None:
    await fail(http, 10, UNKNOWN_USER)
    await fail(http, 10)
    unknown = await PHONE_APP.log_in(http, UNKNOWN_USER)
    known = await PHONE_APP.log_in(http, WRONG_ALICE)

    assert_throttled(unknown)
    assert_throttled(known)
    assert unknown.content == known.content


@pytest.mark.clause("decided-only-failures-count")
async def test_right_passwords_do_not_count(make_settings: MakeSettings, clock: Clock, registry: None) -> None:
    settings = make_settings(
        TOKEN_SERVICE_LOGIN_ATTEMPTS="2/minute",
        TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER="2/hour",
        TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="2/minute",
    )
    async with serving(settings, clock) as http:
        await fail(http, 1)
        statuses = [(await PHONE_APP.log_in(http, ALICE)).status_code for _ in range(5)]

        assert statuses == [200] * 5


@pytest.mark.clause("decided-only-failures-count")
@pytest.mark.parametrize("scope", ["realm:main role:organisation", "nonsense"])
async def test_refused_scope_is_not_a_failed_login(
    make_settings: MakeSettings, clock: Clock, registry: None, scope: str
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS="1/minute"), clock) as http:
        for _ in range(3):
            assert_error(await PHONE_APP.log_in(http, BOB, scope), 400, "invalid_scope")

        assert (await PHONE_APP.log_in(http, BOB)).status_code == 200


@pytest.mark.clause("decided-only-failures-count")
async def test_success_does_not_reset_earlier_failures(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS="2/minute"), clock) as http:
        await fail(http, 1)
        await PHONE_APP.log_in(http, ALICE)
        await fail(http, 1)

        assert_throttled(await PHONE_APP.log_in(http, ALICE))
