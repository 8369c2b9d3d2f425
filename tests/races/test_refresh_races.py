"""Many concurrent refreshes of one session: it never forks, and no generation is spent twice."""

import asyncio
import random
from functools import partial

import httpx2
import pytest

from tests.races.instances import CONCURRENT_REQUESTS, KEYRING, InstancePair, all_at_once, until_available
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, WEB_SHOP, OAuthClient, tokens_of

ROUNDS = 4
TURNS = 4
MAX_PAUSES = 50
MAX_LIVE = 100
"""The maximal number of live access tokens that replays of a session gave."""


def generation_of(refresh_token: str) -> int:
    parsed = KEYRING.parse_refresh_token(refresh_token)
    assert parsed is not None
    return parsed.generation


@pytest.mark.clause("decided-i1-one-winner", "decided-i2-one-head", "decided-replay-gets-the-head")
@pytest.mark.parametrize("client", [PHONE_APP, WEB_SHOP])
async def test_concurrent_refreshes_return_the_same_next_token(
    instances: InstancePair, http: httpx2.AsyncClient, client: OAuthClient
) -> None:
    refresh_token = tokens_of(await client.log_in(http, ALICE))["refresh_token"]
    asked = 0

    async def refresh() -> httpx2.Response:
        nonlocal asked
        asked += 1
        return await client.refresh(http, refresh_token)

    for spent in range(1, ROUNDS + 1):
        answers = await all_at_once([until_available(refresh) for _ in range(CONCURRENT_REQUESTS)])

        bodies = [tokens_of(answer) for answer in answers]
        assert len({body["refresh_token"] for body in bodies}) == 1
        assert len({body["access_token"] for body in bodies}) == CONCURRENT_REQUESTS
        refresh_token = bodies[0]["refresh_token"]
        family = instances.find_family(refresh_token)
        assert family is not None
        assert spent + 1 == family.head == generation_of(refresh_token)
        assert all(instances.knows_access_token(body["access_token"]) for body in bodies)
        # Each requested token is there, and of those that were answered 503 perhaps some.
        replays = spent * (CONCURRENT_REQUESTS - 1)
        honest = 1 + spent
        assert honest + min(replays, MAX_LIVE) <= family.access_tokens <= honest + min(asked - spent, MAX_LIVE)


@pytest.mark.clause("decided-i2-one-head", "decided-replay-of-an-older-generation")
async def test_concurrent_refreshes_keep_one_session(instances: InstancePair, http: httpx2.AsyncClient) -> None:
    """Each of them presents the newest token that it has got, which may be old by then."""
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]

    async def refresh_again_and_again() -> list[str]:
        known = [first]
        for _ in range(TURNS):
            for _ in range(random.randrange(MAX_PAUSES)):
                await asyncio.sleep(0)
            answer = await until_available(partial(PHONE_APP.refresh, http, known[-1]))
            known.append(tokens_of(answer)["refresh_token"])
        return known

    heard = await asyncio.gather(*(refresh_again_and_again() for _ in range(CONCURRENT_REQUESTS)))

    refresh_tokens = {refresh_token for known in heard for refresh_token in known}
    newest = max(refresh_tokens, key=generation_of)
    family = instances.find_family(newest)
    assert family is not None
    assert family.head == generation_of(newest) == len(refresh_tokens)
    assert sorted(generation_of(refresh_token) for refresh_token in refresh_tokens) == [*range(1, family.head + 1)]
    head = tokens_of(await PHONE_APP.refresh(http, newest))["refresh_token"]
    after = await all_at_once([until_available(partial(PHONE_APP.refresh, http, known)) for known in refresh_tokens])
    assert {tokens_of(answer)["refresh_token"] for answer in after} == {head}


@pytest.mark.clause("decided-replays-of-one-generation", "decided-access-tokens-per-family")
async def test_concurrent_replays_keep_their_tokens(instances: InstancePair, http: httpx2.AsyncClient) -> None:
    """Each replay at the bound replaces the token of an older one. The tokens of login and spend stay."""
    first = tokens_of(await PHONE_APP.log_in(http, BOB))
    second = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))
    for _ in range(3):
        ask = partial(PHONE_APP.refresh, http, first["refresh_token"])
        answers = await all_at_once([until_available(ask) for _ in range(CONCURRENT_REQUESTS)])

        bodies = [tokens_of(answer) for answer in answers]
        assert {body["refresh_token"] for body in bodies} == {second["refresh_token"]}
        assert all(instances.knows_access_token(body["access_token"]) for body in bodies)

    assert instances.knows_access_token(first["access_token"])
    assert instances.knows_access_token(second["access_token"])
    assert len(list(instances.store.scan_iter("access:*", count=1000))) == 2 + MAX_LIVE
