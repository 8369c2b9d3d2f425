"""The whole life of codes with many concurrent users, who all get their own.

A log-out ends all that follows from a code.
"""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Sequence
from functools import partial
from hashlib import sha256

import httpx2
import pytest

from tests.races.instances import InstancePair, all_at_once, is_live, places, until_available
from tests.support.browser import SESSIONS, Browser, Page, authorization_response, authorization_url, is_login_page
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    PHONE_APP,
    PHONE_CALLBACK,
    SHOP_CALLBACK,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
    assert_error,
    revoke_all,
    revoke_user,
    tokens_of,
)

CROWD = 24
CODES = 10
EXCHANGES = 4
PLACES = places(0, CODES, CODES * EXCHANGES, more=(3, CODES * EXCHANGES // 2))
"""The positions of the log-out among the other requests. Each gives another interleaving."""

CALLBACKS = {PHONE_APP: PHONE_CALLBACK, WEB_SHOP: SHOP_CALLBACK}


async def log_out_amid(
    place: int, requests: Sequence[Awaitable[httpx2.Response]], log_out: Awaitable[httpx2.Response]
) -> tuple[httpx2.Response, list[httpx2.Response]]:
    """Send the log-out at this position among the requests. Returns its answer, and the answers to the requests."""
    tasks = [asyncio.ensure_future(request) for request in requests[:place]]
    logging_out = asyncio.ensure_future(log_out)
    tasks += [asyncio.ensure_future(request) for request in requests[place:]]
    return await logging_out, list(await asyncio.gather(*tasks))


async def complete_code_flow(
    http: httpx2.AsyncClient, number: int, client: OAuthClient, credentials: UserCredentials
) -> dict[str, str]:
    """Go from the authorization request to the tokens, with a state and a verifier of its own. Returns the tokens."""
    browser, callback, verifier = Browser(http), CALLBACKS[client], f"{number:043}"
    challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")
    address = authorization_url(
        client, callback, state=f"state {number}", code_challenge=challenge, code_challenge_method="S256"
    )
    form = await browser.open(address)
    page = await until_available(partial(browser.log_in, form, credentials))
    answer = authorization_response(await browser.allow(page), callback)
    assert answer["state"] == f"state {number}"
    tokens = tokens_of(await client.exchange(http, answer["code"], callback, code_verifier=verifier))
    return dict(tokens) | {"code": answer["code"]}


@pytest.mark.clause("6749-4.1.2-code-bound", "6749-4.1.2-state-returned", "7636-4.6-equal")
@pytest.mark.clause("decided-parallel-logins-wait")
@pytest.mark.parametrize("people", [(ALICE,), (ALICE, BOB)], ids=["one user", "two users"])
async def test_concurrent_browser_logins_get_separate_sessions(
    instances: InstancePair, http: httpx2.AsyncClient, people: tuple[UserCredentials, ...]
) -> None:
    apps = [(PHONE_APP, WEB_SHOP)[number % 2] for number in range(CROWD)]

    lives = await asyncio.gather(
        *(
            complete_code_flow(http, number, client, people[number // 2 % len(people)])
            for number, client in enumerate(apps)
        )
    )

    for name in ("code", "access_token", "refresh_token"):
        assert len({life[name] for life in lives}) == CROWD
    for client, life in zip(apps, lives, strict=True):
        assert instances.knows_access_token(life["access_token"])
        assert await is_live(
            instances, http, client, dict(tokens_of(await client.refresh(http, life["refresh_token"])))
        )
    assert not list(instances.store.scan_iter("code:*"))


@pytest.mark.clause("decided-i1-one-winner", "decided-i7-revocation-is-final", "decided-revoke-all-covers-logins")
@pytest.mark.clause("spec-4.4-all-tokens")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", ["client", "bearer", "page"])
async def test_codes_exchanged_during_revoke_all_yield_no_session(
    instances: InstancePair, http: httpx2.AsyncClient, place: int, way: str
) -> None:
    """Each code is presented several times. Its tokens must be dead, through a replay or the log-out."""
    of_bob = tokens_of(await PHONE_APP.exchange(http, await Browser(http).get_code(credentials=BOB), PHONE_CALLBACK))
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
    browser = Browser(http)
    codes = [await browser.get_code() for _ in range(CODES)]
    listed = await browser.open(SESSIONS)

    exchanges = [PHONE_APP.exchange(http, code, PHONE_CALLBACK) for _ in range(EXCHANGES) for code in codes]
    ways = {
        "client": partial(revoke_user, http, {"format": "email", "email": ALICE.username}),
        "bearer": partial(revoke_all, http, access_token),
        "page": partial(browser.submit, listed, "/sessions/end-all", {}),
    }
    ended, answers = await log_out_amid(place, exchanges, ways[way]())

    assert ended.status_code == (204 if way == "client" else 200)
    for answer in answers:
        if answer.status_code != 200:
            assert_error(answer, 400, "invalid_grant")
    for number in range(CODES):
        won = [answer for answer in answers[number::CODES] if answer.status_code == 200]
        assert len(won) <= 1
        for answer in won:
            assert not await is_live(instances, http, PHONE_APP, dict(tokens_of(answer)))
    assert is_login_page(await browser.open(authorization_url()))
    assert await is_live(instances, http, PHONE_APP, dict(of_bob))
    later = await browser.get_code()
    assert await is_live(
        instances, http, PHONE_APP, dict(tokens_of(await PHONE_APP.exchange(http, later, PHONE_CALLBACK)))
    )


@pytest.mark.clause("decided-i7-revocation-is-final", "decided-grace-does-not-revive")
@pytest.mark.parametrize("place", PLACES)
async def test_ending_one_session_during_refreshes_spares_others(
    instances: InstancePair, http: httpx2.AsyncClient, place: int
) -> None:
    browser = Browser(http)
    sessions = [
        dict(tokens_of(await PHONE_APP.exchange(http, await browser.get_code(), PHONE_CALLBACK))) for _ in range(CODES)
    ]
    listed = await browser.open(SESSIONS)
    ids = [form.fields["session"] for form in Page(listed).forms if "session" in form.fields]
    assert len(ids) == CODES

    turns = sessions * EXCHANGES
    refreshes = [PHONE_APP.refresh(http, session["refresh_token"]) for session in turns]
    ended, answers = await log_out_amid(
        place, refreshes, browser.submit(listed, "/sessions/end", {"session": ids[CODES // 2]})
    )

    assert len([form for form in Page(ended).forms if "session" in form.fields]) == CODES - 1
    given = [
        [dict(tokens_of(answer)) for answer in answers[number::CODES] if answer.status_code == 200]
        for number in range(CODES)
    ]
    (dead,) = [number for number in range(CODES) if instances.find_family(sessions[number]["refresh_token"]) is None]
    for number, session in enumerate(sessions):
        for body in (session, *given[number]):
            assert instances.knows_access_token(body["access_token"]) == (number != dead)
        answer = await PHONE_APP.refresh(http, session["refresh_token"])
        if number == dead:
            assert_error(answer, 400, "invalid_grant")
        else:
            assert {body["refresh_token"] for body in given[number]} == {tokens_of(answer)["refresh_token"]}


@pytest.mark.clause("decided-i1-one-winner", "decided-revoke-access-token-alone", "7009-2.1-immediate")
@pytest.mark.long
async def test_codes_during_revocations_leave_only_working_sessions(
    instances: InstancePair, http: httpx2.AsyncClient
) -> None:
    """Every other client revokes its session at once. The other sessions live on."""

    async def live(number: int) -> dict[str, str]:
        life = await complete_code_flow(http, number, PHONE_APP, ALICE)
        if number % 2:
            assert (await PHONE_APP.revoke(http, life["refresh_token"])).status_code == 200
        return life

    lives = await asyncio.gather(*(live(number) for number in range(CROWD)))

    for number, life in enumerate(lives):
        assert await is_live(instances, http, PHONE_APP, life) == (number % 2 == 0)
    assert len(list(instances.store.scan_iter("family:*"))) == CROWD // 2
    second_uses = await all_at_once([PHONE_APP.exchange(http, life["code"], PHONE_CALLBACK) for life in lives])
    for answer in second_uses:
        assert_error(answer, 400, "invalid_grant")
