"""Guessing of client secrets over HTTP: counted per client and address and per address, and never per client alone."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import quote_plus

import httpx2
import pytest
import redis

from service.config.settings import Settings
from service.crypto.keyring import hash_generated_secret
from service.crypto.password_hashing import hash_password
from service.protocol.client import Client
from service.store.attempts import QUEUE_TIMEOUT_SECONDS
from service.web.request.client_authentication import ADMITTED_SECONDS
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving
from tests.spec.wrong_logins import WRONG_SHOP
from tests.support.clients_and_users import (
    ALICE,
    MADE_SECRET,
    PHONE_APP,
    READER,
    REVOKE,
    WEB_SHOP,
    OAuthClient,
    assert_error,
    basic,
    delete_user,
    put_user,
    revoke_user,
    tokens_of,
)
from tests.support.events import events_of
from tests.support.loop_time import STEP_SECONDS, LoopTime
from tests.support.redis_monitor import ONE_SERVER, recording_commands


async def fail(http: httpx2.AsyncClient, times: int, client: OAuthClient = WRONG_SHOP) -> None:
    for _ in range(times):
        assert_error(await client.revoke(http, "x"), 401, "invalid_client")


async def guess(http: httpx2.AsyncClient, client_id: str, secret: str) -> httpx2.Response:
    """Send a guess by Basic, with the header exactly as given."""
    return await http.post(REVOKE, data={"token": "x"}, headers=basic(client_id, secret))


@asynccontextmanager
async def serving_a_minute_later(settings: Settings, clock: Clock) -> AsyncIterator[httpx2.AsyncClient]:
    """Make a request a minute later, on another worker.

    A worker measures a refusal by the wall clock, which a test cannot move.
    """
    clock.advance(60)
    async with serving(settings, clock) as http:
        yield http


def assert_throttled(response: httpx2.Response) -> None:
    assert_error(response, 429, "invalid_client")
    assert 1 <= int(response.headers["retry-after"]) <= 60


@pytest.mark.clause(
    "decided-client-limit", "decided-limit-stops-checking", "6749-2.3.1-brute-force", "6819-4.3.5-client-secret-guessed"
)
@pytest.mark.clause("7009-5-guessing-throttled", "decided-error-statuses")
async def test_thirty_first_secret_in_a_minute_is_refused(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    async with serving(make_settings(), clock) as http:
        await fail(http, 30)

        assert_throttled(await WRONG_SHOP.revoke(http, "x"))
        assert_throttled(await WEB_SHOP.revoke(http, "x"))
        assert_throttled(await WEB_SHOP.log_in(http, ALICE))
    async with serving_a_minute_later(make_settings(), clock) as http:
        assert (await WEB_SHOP.log_in(http, ALICE)).status_code == 200


@pytest.mark.clause("decided-limit-stops-checking")
async def test_right_secret_is_accepted_after_the_window(
    held_time: LoopTime, make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_CLIENT_ATTEMPTS="2/minute"), clock) as http:
        await fail(http, 2, replace(MADE_SECRET, client_secret="wrong"))
        first = await MADE_SECRET.revoke(http, "x")
        assert_throttled(first)
        wait_seconds = int(first.headers["retry-after"])
        clock.advance(wait_seconds)
        assert_throttled(await MADE_SECRET.revoke(http, "x"))
        held_time.advance(wait_seconds)

        assert (await MADE_SECRET.revoke(http, "x")).status_code == 200


@pytest.mark.clause("decided-client-limit", "6749-2.3.1-brute-force", "7009-5-guessing-throttled")
@pytest.mark.clause("7662-4-guessing-throttled")
async def test_all_endpoints_count_together(make_settings: MakeSettings, clock: Clock, registry: None) -> None:
    async with serving(make_settings(TOKEN_SERVICE_CLIENT_ATTEMPTS="5/minute"), clock) as http:
        assert_error(await WRONG_SHOP.log_in(http, ALICE), 401, "invalid_client")
        assert_error(await revoke_user(http, {}, WRONG_SHOP), 401, "invalid_client")
        assert_error(await WRONG_SHOP.revoke(http, "x"), 401, "invalid_client")
        assert_error(await WRONG_SHOP.introspect(http, "x"), 401, "invalid_client")
        assert_error(await put_user(http, "x", {}, WRONG_SHOP), 401, "invalid_client")

        assert_throttled(await revoke_user(http, {}, WEB_SHOP))
        assert_throttled(await put_user(http, "x", {}, WEB_SHOP))
        assert_throttled(await delete_user(http, "x", WEB_SHOP))
        assert_throttled(await WEB_SHOP.introspect(http, "x"))
        assert_throttled(await WEB_SHOP.refresh(http, "x"))


@pytest.mark.clause("decided-limit-stops-checking")
@pytest.mark.parametrize("client", [WEB_SHOP, MADE_SECRET, READER], ids=lambda client: client.client_id)
async def test_a_client_that_was_right_before_is_refused_too(
    make_settings: MakeSettings, clock: Clock, registry: None, client: OAuthClient
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_CLIENT_ATTEMPTS="2/minute"), clock) as http:
        assert (await client.revoke(http, "x")).status_code == 200
        await fail(http, 2, replace(client, client_secret="wrong"))

        assert_throttled(await client.revoke(http, "x"))
        assert_throttled(await http.post(REVOKE, data={"token": "x"}, headers=client.basic))


@pytest.mark.clause("decided-client-limit")
async def test_address_limits_do_not_affect_other_addresses(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    settings = make_settings(TOKEN_SERVICE_CLIENT_ATTEMPTS="2/minute")
    for number in range(5):
        async with serving(settings, clock, address=f"198.51.100.{number}") as http:
            await fail(http, 2)
            assert_throttled(await WEB_SHOP.revoke(http, "x"))

    async with serving(settings, clock, address="203.0.113.200") as http:
        assert (await WEB_SHOP.revoke(http, "x")).status_code == 200


@pytest.mark.clause("decided-client-limit", "6749-2.3.1-brute-force")
async def test_address_limit_is_three_times_the_client_limit(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    settings = make_settings(TOKEN_SERVICE_CLIENT_ATTEMPTS="2/minute")
    async with serving(settings, clock) as http:
        for number in range(6):
            await fail(http, 1, OAuthClient(f"client-{number}", "wrong"))

        assert_throttled(await OAuthClient("client-7", "wrong").revoke(http, "x"))
        assert_throttled(await WEB_SHOP.revoke(http, "x"))
    async with serving_a_minute_later(settings, clock) as http:
        assert (await WEB_SHOP.revoke(http, "x")).status_code == 200


@pytest.mark.clause("decided-client-limit")
async def test_public_client_is_not_throttled(make_settings: MakeSettings, clock: Clock, registry: None) -> None:
    async with serving(make_settings(TOKEN_SERVICE_CLIENT_ATTEMPTS="1/minute"), clock) as http:
        await fail(http, 1, OAuthClient("phone-app", "x"))
        await PHONE_APP.revoke(http, "x")

        assert tokens_of(await PHONE_APP.log_in(http, ALICE))["token_type"] == "Bearer"


@pytest.mark.clause("decided-client-limit")
async def test_failed_logins_and_failed_clients_are_counted_apart(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    settings = make_settings(
        TOKEN_SERVICE_CLIENT_ATTEMPTS="1/minute", TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="1/minute"
    )
    async with serving(settings, clock) as http:
        assert_error(await WEB_SHOP.log_in(http, replace(ALICE, password="wrong")), 400, "invalid_grant")

        assert (await WEB_SHOP.revoke(http, "x")).status_code == 200


@pytest.mark.clause("decided-client-limit", "decided-basic-encoded-and-raw", "6749-2.3.1-brute-force")
@pytest.mark.parametrize("secrets", [("a%2Bb", "a+b"), ("a+b", "a+c")])
async def test_a_basic_credential_with_two_readings_is_one_attempt(
    make_settings: MakeSettings, clock: Clock, registry: None, secrets: tuple[str, str]
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_CLIENT_ATTEMPTS="3/minute"), clock) as http:
        for secret in secrets:
            assert_error(await guess(http, "web-shop", secret), 401, "invalid_client")

        assert_error(await guess(http, "web-shop", "wrong"), 401, "invalid_client")
        assert_throttled(await guess(http, "web-shop", "web-shop-secret"))


TWO_READINGS = "p+q%41/r s%2B+20%"
"""A secret that has another value when it is form-decoded."""


@pytest.mark.clause("decided-only-failures-count", "decided-basic-encoded-and-raw")
@pytest.mark.parametrize("is_encoded", [False, True], ids=["raw", "encoded"])
@pytest.mark.parametrize("make_hash", [hash_password, hash_generated_secret], ids=["chosen", "made"])
async def test_a_right_secret_is_never_a_failure(
    make_settings: MakeSettings,
    clock: Clock,
    worker: Worker,
    store: redis.Redis,
    json_logs: io.StringIO,
    make_hash: Callable[[str], str],
    is_encoded: bool,
) -> None:
    client = Client(client_id="plus", client_secret_hash=make_hash(TWO_READINGS))
    await worker.registry.clients.put(client)
    spell = quote_plus if is_encoded else str
    async with serving(make_settings(TOKEN_SERVICE_CLIENT_ATTEMPTS="2/minute"), clock) as http:
        statuses = [(await guess(http, "plus", spell(TWO_READINGS))).status_code for _ in range(10)]

        assert statuses == [200] * 10
        assert not list(store.scan_iter("address:*"))
        assert not [event for event, _ in events_of(json_logs) if event.startswith("client_")]
        for _ in range(2):
            assert_error(await guess(http, "plus", spell(f"{TWO_READINGS}!")), 401, "invalid_client")
        assert_throttled(await guess(http, "plus", spell(TWO_READINGS)))


@pytest.mark.clause("decided-client-limit", "decided-basic-encoded-and-raw", "6749-2.3.1-brute-force")
@pytest.mark.parametrize(("first", "second"), [("a+b", "a%2Bb"), ("a%2Bb", "a+b")])
async def test_spellings_of_a_client_id_share_a_counter(
    make_settings: MakeSettings, clock: Clock, worker: Worker, first: str, second: str
) -> None:
    client = Client(client_id="a+b", client_secret_hash=hash_generated_secret("s" * 43))
    await worker.registry.clients.put(client)
    async with serving(make_settings(TOKEN_SERVICE_CLIENT_ATTEMPTS="2/minute"), clock) as http:
        assert_error(await guess(http, first, "wrong"), 401, "invalid_client")
        assert_error(await guess(http, second, "wrong"), 401, "invalid_client")

        for spelling in ("a+b", "a%2Bb"):
            assert_throttled(await guess(http, spelling, "s" * 43))
        assert_throttled(await OAuthClient("a+b", "s" * 43).revoke(http, "x"))


@pytest.mark.clause("decided-client-limit", "decided-limit-stops-checking")
async def test_cached_right_secret_is_refused_past_the_limit(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    """The worker itself has seen no failure."""
    settings = make_settings(TOKEN_SERVICE_CLIENT_ATTEMPTS="2/minute")
    async with (
        serving(settings, clock) as knowing,
        serving(settings, clock, address="198.51.100.1") as elsewhere,
        serving(settings, clock) as guessed_at,
    ):
        assert (await WEB_SHOP.revoke(elsewhere, "x")).status_code == 200
        await fail(guessed_at, 2)

        assert_throttled(await WEB_SHOP.revoke(knowing, "x"))
        assert (await WEB_SHOP.revoke(elsewhere, "x")).status_code == 200


@ONE_SERVER
@pytest.mark.clause("decided-limit-stops-checking")
async def test_repeated_refusals_do_not_reach_redis(
    http: httpx2.AsyncClient, store: redis.Redis, held_time: LoopTime
) -> None:
    await fail(http, 30)
    assert_throttled(await WEB_SHOP.revoke(http, "x"))

    with recording_commands(store) as commands:
        assert_throttled(await WEB_SHOP.revoke(http, "x"))

    assert not [command for command in commands if "{" in command]  # each key has a hash tag


REQUESTS_IN_FLIGHT = 300
MAX_TURNS = 20


@pytest.mark.clause("decided-only-failures-count")
@pytest.mark.parametrize("client", [WEB_SHOP, MADE_SECRET], ids=lambda client: client.client_id)
async def test_requests_of_a_busy_client_continue_together(
    http: httpx2.AsyncClient, held_time: LoopTime, client: OAuthClient
) -> None:
    """One of them asks Redis for room. The others do not wait for each other after that."""
    assert (await client.revoke(http, "x")).status_code == 200
    held_time.advance(ADMITTED_SECONDS)
    loop, turn = asyncio.get_running_loop(), 0
    ended_in: list[int] = []

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        if len(ended_in) < REQUESTS_IN_FLIGHT:
            loop.call_soon(count_turns)

    async def revoke() -> int:
        status = (await client.revoke(http, "x")).status_code
        ended_in.append(turn)
        return status

    count_turns()
    statuses = await asyncio.gather(*(revoke() for _ in range(REQUESTS_IN_FLIGHT)))

    assert statuses == [200] * REQUESTS_IN_FLIGHT
    assert max(ended_in) - min(ended_in) <= MAX_TURNS


async def test_a_request_waits_for_several_checks_only_once(
    http: httpx2.AsyncClient, store: redis.Redis, held_time: LoopTime
) -> None:
    """Each check waits for room until it gives up. Then another one begins."""
    await fail(http, 1)
    for counter in store.scan_iter("address:*"):
        store.set(f"lease:{counter}", 1_000, px=60_000)
    first = asyncio.create_task(WEB_SHOP.revoke(http, "x"))
    await held_time.advance_in_steps(1)
    asked_at = held_time.read()
    others = [asyncio.create_task(WEB_SHOP.revoke(http, "x")) for _ in range(3)]

    await held_time.advance_until_done(first)
    await held_time.advance_until_done(others[-1])

    assert held_time.read() - asked_at <= QUEUE_TIMEOUT_SECONDS + 2 * STEP_SECONDS
    for answer in [await first, *[await held_time.advance_until_done(other) for other in others]]:
        assert_error(answer, 503, "temporarily_unavailable")
