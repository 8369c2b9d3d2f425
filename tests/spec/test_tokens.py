"""Tokens and codes over HTTP: their alphabet and their single spelling. Invented ones are refused."""

import re
from collections.abc import Iterator

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.conftest import make_code
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    PHONE_APP,
    PHONE_CALLBACK,
    assert_error,
    is_live,
    revoke_all,
    tokens_of,
)

ALPHABET = re.compile(r"[A-Za-z0-9_-]+")


def flip_each(token: str) -> Iterator[str]:
    """Yield the token with one character replaced by another of its alphabet, for each position."""
    for position, character in enumerate(token):
        other = "1" if character == "0" else "0"
        yield token[:position] + other + token[position + 1 :]


def alternative_spellings(token: str) -> list[str]:
    """Yield other texts that a careless parser might take for the token."""
    return [f"{token}=", f"{token}A", f" {token}", f"{token} ", f"{token}\n", token.upper(), token[:-1], f"{token}.x"]


COUNTS_MISSES = pytest.mark.single_server("misses are counted, and on a cluster a beat is one as well")


def count_misses(store: redis.Redis) -> int:
    """Return how often Redis was asked for a key that does not exist, as it is for a token that was never issued."""
    return int(store.info("stats")["keyspace_misses"])


@pytest.mark.clause("decided-token-alphabet", "6749-a.12-token-characters", "spec-1-opaque-tokens")
async def test_tokens_and_codes_are_url_safe(http: httpx2.AsyncClient, worker: Worker) -> None:
    for _ in range(10):
        code = await make_code(worker)
        tokens = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))
        refreshed = tokens_of(await PHONE_APP.refresh(http, tokens["refresh_token"]))

        for text in (code, tokens["access_token"], tokens["refresh_token"], refreshed["refresh_token"]):
            assert ALPHABET.fullmatch(text)
            assert len(text) < 100


@pytest.mark.clause("6749-1.5-refresh-token-opaque", "6749-1.4-access-token-opaque", "spec-1-opaque-tokens")
async def test_a_token_says_nothing_about_its_user_or_client(http: httpx2.AsyncClient) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    text = tokens["access_token"] + tokens["refresh_token"]

    assert not re.search(r"alice|example|phone|enduser", text, re.IGNORECASE)


@pytest.mark.clause("6750-5.2-integrity", "6749-10.3-unforgeable", "6750-5.2-unguessable")
async def test_an_access_token_with_any_character_changed_is_worthless(
    http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    for forged in flip_each(access_token):
        assert_error(await revoke_all(http, forged), 401, "invalid_token")
    assert is_live(store, access_token)
    assert (await revoke_all(http, access_token)).status_code == 200


@pytest.mark.clause("6749-10.4-unforgeable", "6819-5.1.5.9-refresh-token-authenticated", "6750-5.2-integrity")
@pytest.mark.clause("6749-6-token-validated")
@COUNTS_MISSES
async def test_altered_refresh_token_is_refused_by_its_form(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    refresh_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
    before = count_misses(store)

    for forged in flip_each(refresh_token):
        assert_error(await PHONE_APP.refresh(http, forged), 400, "invalid_grant")
    assert count_misses(store) == before
    assert (await PHONE_APP.refresh(http, refresh_token)).status_code == 200


@pytest.mark.clause("6749-4.1.3-code-valid", "6750-5.2-integrity", "6819-4.4.1.3-code-guessed")
async def test_a_code_with_any_character_changed_is_refused(http: httpx2.AsyncClient, worker: Worker) -> None:
    code = await make_code(worker)

    for forged in flip_each(code):
        assert_error(await PHONE_APP.exchange(http, forged, PHONE_CALLBACK), 400, "invalid_grant")
    assert (await PHONE_APP.exchange(http, code, PHONE_CALLBACK)).status_code == 200


@pytest.mark.clause("decided-token-canonical-spelling", "6749-10.14-input-validated", "6819-4.4.1.12-invented-codes")
@COUNTS_MISSES
async def test_a_token_has_one_spelling_and_others_do_not_reach_redis(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis
) -> None:
    code = await make_code(worker)
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    before = count_misses(store)

    for other in alternative_spellings(tokens["refresh_token"]):
        assert_error(await PHONE_APP.refresh(http, other), 400, "invalid_grant")
    for other in alternative_spellings(code):
        assert_error(await PHONE_APP.exchange(http, other, PHONE_CALLBACK), 400, "invalid_grant")
    assert count_misses(store) == before
    assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200
    assert (await PHONE_APP.exchange(http, code, PHONE_CALLBACK)).status_code == 200


@pytest.mark.clause("decided-token-canonical-spelling", "6750-2.1-syntax")
@COUNTS_MISSES
async def test_impossible_bearer_does_not_reach_redis(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    others = [f"{tokens['access_token']}=", f"{tokens['access_token']}A", tokens["refresh_token"], "a b", "x", '"']
    before = count_misses(store)

    for other in others:
        assert_error(await revoke_all(http, other), 401, "invalid_token")
    assert count_misses(store) == before
    assert_error(await revoke_all(http, "tsat1_" + "0" * 47), 401, "invalid_token")
    assert count_misses(store) == before + 1


@pytest.mark.clause("7009-5-hint-costs-nothing", "7009-2.1-hint-ignored")
@COUNTS_MISSES
async def test_a_hint_causes_no_further_look_up(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    unknown = "tsat1_" + "0" * 47
    costs = []
    for extra in ({}, {"token_type_hint": "access_token"}, {"token_type_hint": "refresh_token"}):
        before = count_misses(store)
        await PHONE_APP.revoke(http, unknown, **extra)
        costs.append(count_misses(store) - before)

    assert costs == [1, 1, 1]


@pytest.mark.clause("6750-5.2-integrity")
async def test_the_shard_of_another_user_leads_nowhere(http: httpx2.AsyncClient) -> None:
    alice = tokens_of(await PHONE_APP.log_in(http, ALICE))
    bob = tokens_of(await PHONE_APP.log_in(http, BOB))
    shard = slice(len("tsat1_"), len("tsat1_") + 3)
    access_token = alice["access_token"][:6] + bob["access_token"][shard] + alice["access_token"][9:]
    refresh_token = alice["refresh_token"][:6] + bob["refresh_token"][shard] + alice["refresh_token"][9:]

    assert_error(await revoke_all(http, access_token), 401, "invalid_token")
    assert_error(await PHONE_APP.refresh(http, refresh_token), 400, "invalid_grant")
