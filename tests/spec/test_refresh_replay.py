"""Spent refresh tokens over HTTP: a retry within the grace period is safe, and a later one is taken for theft."""

import io
from asyncio import gather
from collections.abc import Mapping

import httpx2
import pytest
import redis

from tests.conftest import Clock
from tests.support.clients_and_users import ALICE, PHONE_APP, WEB_SHOP, assert_error, is_live, tokens_of, verify
from tests.support.events import events_of


def family_key(store: redis.Redis) -> str:
    """Return the key of the only family."""
    (key,) = store.scan_iter("family:*")
    return str(key)


@pytest.mark.clause("spec-3-replay-in-grace", "spec-4.2-refresh-grace", "decided-replay-gets-the-head")
async def test_retry_gets_the_same_refresh_token(http: httpx2.AsyncClient, clock: Clock, store: redis.Redis) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))
    second = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))
    clock.advance(290)

    retried = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))

    assert retried["refresh_token"] == second["refresh_token"]
    assert retried["access_token"] not in (first["access_token"], second["access_token"])
    assert is_live(store, second["access_token"])
    assert is_live(store, retried["access_token"])


@pytest.mark.clause("decided-replays-of-one-generation", "decided-replay-gets-the-head")
async def test_replays_do_not_displace_honest_access_tokens(http: httpx2.AsyncClient, json_logs: io.StringIO) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))
    second = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))
    events_of(json_logs)

    replays = [tokens_of(await PHONE_APP.refresh(http, first["refresh_token"])) for _ in range(101)]

    events = [event for event, _ in events_of(json_logs)]
    assert events == ["refresh_token_repeated"] * 4 + ["replay_pattern"] + ["refresh_token_repeated"] * 96
    assert {replay["refresh_token"] for replay in replays} == {second["refresh_token"]}
    assert (await verify(http, first["access_token"])).status_code == 200
    assert (await verify(http, second["access_token"])).status_code == 200
    statuses = [(await verify(http, replay["access_token"])).status_code for replay in replays]
    assert statuses == [401] + [200] * 100


@pytest.mark.clause("decided-replays-of-one-generation", "decided-replay-gets-the-head")
async def test_fifty_users_of_one_refresh_token_all_get_working_tokens(http: httpx2.AsyncClient) -> None:
    """Many workers or tabs refresh at the same moment."""
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))

    async def refresh_fifty_times(refresh_token: str) -> list[Mapping[str, str]]:
        return list(map(tokens_of, await gather(*(PHONE_APP.refresh(http, refresh_token) for _ in range(50)))))

    answers = await refresh_fifty_times(first["refresh_token"])
    in_a_row = [tokens_of(await PHONE_APP.refresh(http, first["refresh_token"])) for _ in range(6)]
    heads = {answer["refresh_token"] for answer in answers + in_a_row}
    assert len(heads) == 1
    assert len({answer["access_token"] for answer in answers + in_a_row}) == 56
    for answer in [first, *answers, *in_a_row]:
        assert (await verify(http, answer["access_token"])).status_code == 200

    for answer in await refresh_fifty_times(heads.pop()):
        assert (await verify(http, answer["access_token"])).status_code == 200


@pytest.mark.clause("decided-replay-of-an-older-generation", "decided-i2-one-head")
async def test_spent_token_gets_the_newest_within_the_grace(http: httpx2.AsyncClient) -> None:
    spent = [tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]]
    for _ in range(4):
        spent.append(tokens_of(await PHONE_APP.refresh(http, spent[-1]))["refresh_token"])
    newest = spent.pop()

    answered = [tokens_of(await PHONE_APP.refresh(http, old))["refresh_token"] for old in spent]

    assert answered == [newest] * 4


@pytest.mark.clause(
    "decided-late-replay-ends-family",
    "6819-5.2.2.3-reuse-ends-family",
    "6749-10.4-abuse-detected",
    "6819-4.1.2-refresh-token-taken",
    "6819-4.5.1-refresh-tokens-on-the-wire",
)
@pytest.mark.clause("spec-8-refresh-once", "spec-8-grace-five-minutes", "decided-grace-end-exclusive")
async def test_a_replay_at_the_end_of_the_grace_ends_the_family(
    http: httpx2.AsyncClient, clock: Clock, store: redis.Redis
) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))
    second = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))
    clock.advance(300)

    assert_error(await PHONE_APP.refresh(http, first["refresh_token"]), 400, "invalid_grant")
    assert_error(await PHONE_APP.refresh(http, second["refresh_token"]), 400, "invalid_grant")
    assert not is_live(store, first["access_token"])
    assert not is_live(store, second["access_token"])


@pytest.mark.clause("decided-grace-from-first-use", "spec-3-replay-in-grace", "spec-8-grace-five-minutes")
async def test_no_replay_moves_the_grace(http: httpx2.AsyncClient, clock: Clock) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))
    await PHONE_APP.refresh(http, first["refresh_token"])
    for _ in range(2):
        clock.advance(145)
        assert (await PHONE_APP.refresh(http, first["refresh_token"])).status_code == 200
    clock.advance(10)

    assert_error(await PHONE_APP.refresh(http, first["refresh_token"]), 400, "invalid_grant")


async def test_every_generation_has_a_grace_of_its_own(http: httpx2.AsyncClient, clock: Clock) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))
    second = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))
    clock.advance(200)
    third = tokens_of(await PHONE_APP.refresh(http, second["refresh_token"]))
    clock.advance(200)

    assert tokens_of(await PHONE_APP.refresh(http, second["refresh_token"]))["refresh_token"] == third["refresh_token"]
    assert_error(await PHONE_APP.refresh(http, first["refresh_token"]), 400, "invalid_grant")


@pytest.mark.clause("decided-late-replay-ends-family", "6749-10.4-abuse-detected")
async def test_ancestor_is_recognised_at_any_distance(http: httpx2.AsyncClient, clock: Clock) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
    head = first
    for _ in range(150):
        head = tokens_of(await PHONE_APP.refresh(http, head))["refresh_token"]
    clock.advance(300)

    assert_error(await PHONE_APP.refresh(http, first), 400, "invalid_grant")
    assert_error(await PHONE_APP.refresh(http, head), 400, "invalid_grant")


@pytest.mark.clause("decided-late-replay-ends-family")
async def test_a_late_replay_leaves_the_users_other_sessions_alone(http: httpx2.AsyncClient, clock: Clock) -> None:
    other = tokens_of(await PHONE_APP.log_in(http, ALICE))
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))
    await PHONE_APP.refresh(http, first["refresh_token"])
    clock.advance(300)
    await PHONE_APP.refresh(http, first["refresh_token"])

    assert (await PHONE_APP.refresh(http, other["refresh_token"])).status_code == 200


@pytest.mark.clause("decided-spent-times-in-64ths")
async def test_every_generation_beyond_the_ring_keeps_its_grace(http: httpx2.AsyncClient, clock: Clock) -> None:
    spent = [tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]]
    for _ in range(180):
        spent.append(tokens_of(await PHONE_APP.refresh(http, spent[-1]))["refresh_token"])
        clock.advance(1)
    newest = spent.pop()

    answered = {tokens_of(await PHONE_APP.refresh(http, old))["refresh_token"] for old in spent}

    assert {newest} == answered


@pytest.mark.clause("decided-foreign-client-harms-nothing", "6749-6-token-of-this-client", "6749-10.4-bound-to-client")
@pytest.mark.clause("6749-10.4-binding-verified", "6819-5.1.5.8-bound-to-client", "6819-5.2.2.2-bound-to-client-id")
async def test_another_client_can_neither_use_nor_end_a_family(
    http: httpx2.AsyncClient, clock: Clock, store: redis.Redis
) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))
    second = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))
    clock.advance(300)
    before = store.get(family_key(store))

    assert_error(await WEB_SHOP.refresh(http, first["refresh_token"]), 400, "invalid_grant")
    assert_error(await WEB_SHOP.refresh(http, second["refresh_token"]), 400, "invalid_grant")
    assert before == store.get(family_key(store))
    assert (await PHONE_APP.refresh(http, second["refresh_token"])).status_code == 200


@pytest.mark.clause("decided-generation-ahead-of-redis", "decided-i10-outage-is-not-theft")
async def test_family_continues_from_a_generation_lost_by_redis(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    tokens = [tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]]
    key = family_key(store)
    store.copy(key, f"kept:{key}")
    for _ in range(3):
        tokens.append(tokens_of(await PHONE_APP.refresh(http, tokens[-1]))["refresh_token"])
    store.copy(f"kept:{key}", key, replace=True)

    recovered = tokens_of(await PHONE_APP.refresh(http, tokens[-1]))["refresh_token"]
    retried = [tokens_of(await PHONE_APP.refresh(http, old))["refresh_token"] for old in tokens]

    assert recovered not in tokens
    assert retried == [recovered] * 4


@pytest.mark.clause("decided-generation-ahead-of-redis")
async def test_lost_generations_are_replays_once_a_grace_has_passed(
    http: httpx2.AsyncClient, store: redis.Redis, clock: Clock
) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
    key = family_key(store)
    store.copy(key, f"kept:{key}")
    second = tokens_of(await PHONE_APP.refresh(http, first))["refresh_token"]
    third = tokens_of(await PHONE_APP.refresh(http, second))["refresh_token"]
    store.copy(f"kept:{key}", key, replace=True)
    recovered = tokens_of(await PHONE_APP.refresh(http, third))["refresh_token"]
    clock.advance(300)

    assert_error(await PHONE_APP.refresh(http, second), 400, "invalid_grant")
    assert_error(await PHONE_APP.refresh(http, recovered), 400, "invalid_grant")
