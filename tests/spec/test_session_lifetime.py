"""Lifetimes of families and their tokens over HTTP."""

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.conftest import Clock, Elapsed, MakeSettings, make_code, serving
from tests.support.browser import register
from tests.support.clients_and_users import (
    ALICE,
    PHONE_APP,
    PHONE_CALLBACK,
    assert_error,
    is_live,
    revoke_all,
    tokens_of,
)

DAY = 86_400


def read_family_ttl_ms(store: redis.Redis) -> int:
    """Return the time to live of the only family there is."""
    (key,) = store.scan_iter("family:*")
    return int(store.pttl(key))


@pytest.mark.clause("decided-access-token-ttl", "6750-5.2-lifetime-limited", "6750-5.3-one-hour")
@pytest.mark.clause("6819-5.1.5.3-short-expiry", "spec-8-short-access-token", "spec-1-short-access-long-refresh")
@pytest.mark.clause("6749-5.1-expires-in")
async def test_an_access_token_is_dead_after_ten_minutes(
    http: httpx2.AsyncClient, clock: Clock, store: redis.Redis
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    clock.advance(590)

    assert int(tokens["expires_in"]) == 600
    assert is_live(store, tokens["access_token"])
    clock.advance(10)
    assert not is_live(store, tokens["access_token"])
    assert_error(await revoke_all(http, tokens["access_token"]), 401, "invalid_token")


@pytest.mark.clause("decided-access-token-ttl", "decided-access-token-within-family", "6749-5.1-expires-in")
@pytest.mark.parametrize(("kind", "seconds"), [("ACCESS", 60.5), ("REFRESH", 100)])
async def test_access_token_lives_as_set_and_within_its_session(
    make_settings: MakeSettings, clock: Clock, registry: None, store: redis.Redis, kind: str, seconds: float
) -> None:
    async with serving(make_settings(**{f"TOKEN_SERVICE_{kind}_TOKEN_TTL": str(seconds)}), clock) as http:
        tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))

    assert int(tokens["expires_in"]) == int(seconds)
    clock.advance(seconds)
    assert not is_live(store, tokens["access_token"])


@pytest.mark.clause("decided-refresh-token-ttl", "6749-6-token-validated", "6819-5.1.5.2-expiry")
async def test_a_refresh_token_lives_thirty_days(http: httpx2.AsyncClient, clock: Clock) -> None:
    kept, lost = [tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"] for _ in range(2)]
    clock.advance(30 * DAY - 60)

    assert (await PHONE_APP.refresh(http, kept)).status_code == 200
    clock.advance(60)
    assert_error(await PHONE_APP.refresh(http, lost), 400, "invalid_grant")


@pytest.mark.clause("decided-replay-keeps-ttl", "decided-refresh-token-ttl")
async def test_a_refresh_counts_the_life_anew_and_a_replay_does_not(
    http: httpx2.AsyncClient, clock: Clock, store: redis.Redis, elapsed: Elapsed
) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
    clock.advance(10 * DAY)
    await PHONE_APP.refresh(http, first)
    after_refresh_ms = read_family_ttl_ms(store)
    clock.advance(200)
    await PHONE_APP.refresh(http, first)
    after_replay_ms = read_family_ttl_ms(store)

    assert elapsed.leaves(after_refresh_ms, 30 * DAY * 1000)
    assert elapsed.leaves(after_replay_ms, (30 * DAY - 200) * 1000)


@pytest.mark.clause("decided-session-max-age", "decided-access-token-within-family")
async def test_an_active_session_ends_at_its_greatest_age(
    make_settings: MakeSettings, clock: Clock, registry: None, store: redis.Redis, elapsed: Elapsed
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_SESSION_MAX_AGE="1000"), clock) as http:
        refresh_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
        for _ in range(3):
            clock.advance(300)
            tokens = tokens_of(await PHONE_APP.refresh(http, refresh_token))
            refresh_token = tokens["refresh_token"]

        expires_in_ms = int(tokens["expires_in"]) * 1000  # rounded down to whole seconds
        assert expires_in_ms <= 100_000
        assert elapsed.leaves(min(expires_in_ms + 999, 100_000), 100_000)
        clock.advance(100)
        assert_error(await PHONE_APP.refresh(http, refresh_token), 400, "invalid_grant")
        assert not is_live(store, tokens["access_token"])


@pytest.mark.clause("decided-session-max-age", "decided-too-old-stays-ended")
async def test_new_maximum_age_applies_to_older_sessions(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    async with serving(make_settings(), clock) as http:
        refresh_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
    clock.advance(1000)

    for max_age in ("1000", "100000"):
        async with serving(make_settings(TOKEN_SERVICE_SESSION_MAX_AGE=max_age), clock) as http:
            assert_error(await PHONE_APP.refresh(http, refresh_token), 400, "invalid_grant")


@pytest.mark.clause("decided-client-lifetimes", "6749-5.1-expires-in")
async def test_every_grant_uses_the_lifetimes_of_its_client(
    http: httpx2.AsyncClient, worker: Worker, clock: Clock
) -> None:
    grants = ("password", "authorization_code", "refresh_token")
    app = await register(worker, "portal", grant_types=grants, access_token_ttl=60, session_max_age=100)
    code = await make_code(worker, ALICE, app)
    by_password = tokens_of(await app.log_in(http, ALICE))
    by_code = tokens_of(await app.exchange(http, code, PHONE_CALLBACK))
    of_phone = tokens_of(await PHONE_APP.log_in(http, ALICE))
    clock.advance(70)
    refreshed = tokens_of(await app.refresh(http, by_code["refresh_token"]))

    assert [int(tokens["expires_in"]) for tokens in (by_password, by_code, of_phone)] == [60, 60, 600]
    assert int(refreshed["expires_in"]) <= 30
    clock.advance(31)
    assert_error(await app.refresh(http, refreshed["refresh_token"]), 400, "invalid_grant")
    assert (await PHONE_APP.refresh(http, of_phone["refresh_token"])).status_code == 200


@pytest.mark.clause("decided-access-tokens-per-family")
async def test_family_has_at_most_a_hundred_access_tokens(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    issued = [tokens["access_token"]]
    for _ in range(99):
        tokens = tokens_of(await PHONE_APP.refresh(http, tokens["refresh_token"]))
        issued.append(tokens["access_token"])
    before = [is_live(store, access_token) for access_token in issued]
    for _ in range(2):
        tokens = tokens_of(await PHONE_APP.refresh(http, tokens["refresh_token"]))
        issued.append(tokens["access_token"])

    assert before == [True] * 100
    assert [is_live(store, access_token) for access_token in issued] == [False] * 2 + [True] * 100
