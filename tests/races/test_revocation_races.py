"""Log-outs during other requests: after the answer nothing that it covers lives or can be made."""

import asyncio
from collections.abc import Sequence
from functools import partial

import httpx2
import pytest

from service.crypto.keyring import RefreshToken, make_access_token, make_first_refresh_token
from service.protocol.client import Client
from service.protocol.user import User, identify_user
from service.store.keys import ended_key
from service.worker import Worker
from tests.conftest import make_code
from tests.races.instances import (
    CONCURRENT_REQUESTS,
    KEYRING,
    InstancePair,
    all_at_once,
    is_live,
    places,
    until_available,
)
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    MADE_SECRET,
    PHONE_APP,
    PHONE_CALLBACK,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
    assert_error,
    revoke_all,
    revoke_user,
    tokens_of,
)
from tests.support.logins import login_of

PHONE = Client(client_id="phone-app", scope="realm:main role:enduser")
APPS = (PHONE_APP, WEB_SHOP, MADE_SECRET, PHONE_APP)
PLACES = places(
    0, CONCURRENT_REQUESTS // 4, CONCURRENT_REQUESTS, more=(5, CONCURRENT_REQUESTS // 2, 3 * CONCURRENT_REQUESTS // 4)
)
"""The positions of the revocation among the refreshes. Each gives another interleaving."""

ENDED = (200, 401)
"""The answers of a successful revokeAll. 401: an earlier attempt that was answered 503 has ended its own session."""

OF_ALICE = {"format": "email", "email": ALICE.username}

Session = tuple[OAuthClient, dict[str, str]]


async def log_in(http: httpx2.AsyncClient, client: OAuthClient, credentials: UserCredentials = ALICE) -> Session:
    return client, dict(tokens_of(await until_available(partial(client.log_in, http, credentials))))


def refresh_all(http: httpx2.AsyncClient, sessions: Sequence[Session]) -> list[asyncio.Task[httpx2.Response]]:
    turns = [sessions[i % len(sessions)] for i in range(CONCURRENT_REQUESTS)]
    asked = [partial(client.refresh, http, body["refresh_token"]) for client, body in turns]
    return [asyncio.ensure_future(until_available(ask)) for ask in asked]


def find_issued(sessions: Sequence[Session], answers: Sequence[httpx2.Response]) -> list[Session]:
    """Return all sessions that the users hold afterwards: the earlier ones, and those of the refreshes."""
    for answer in answers:
        if answer.status_code != 200:
            assert_error(answer, 400, "invalid_grant")
    given = [
        (sessions[i % len(sessions)][0], dict(tokens_of(answer)))
        for i, answer in enumerate(answers)
        if answer.status_code == 200
    ]
    return [*sessions, *given]


async def find_live(instances: InstancePair, http: httpx2.AsyncClient, sessions: Sequence[Session]) -> list[Session]:
    return [(app, body) for app, body in sessions if await is_live(instances, http, app, body)]


@pytest.mark.clause("decided-i7-revocation-is-final", "decided-revoke-all-covers")
@pytest.mark.clause("decided-revoke-all-later-tokens-live", "decided-grace-does-not-revive", "spec-4.4-all-tokens")
@pytest.mark.clause("spec-3-revoke-all", "6819-5.2.2.4-revocation")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("by_client", [True, False], ids=["client", "bearer"])
async def test_revoke_all_ends_sessions_during_refreshes(
    instances: InstancePair, http: httpx2.AsyncClient, place: int, by_client: bool
) -> None:
    of_bob = await log_in(http, PHONE_APP, BOB)
    sessions = [await log_in(http, app) for app in APPS]

    requests = refresh_all(http, sessions)
    by_bearer = partial(revoke_all, http, sessions[0][1]["access_token"])
    revoke = partial(revoke_user, http, OF_ALICE) if by_client else by_bearer
    requests.insert(place, asyncio.ensure_future(until_available(revoke)))
    revoked = await requests.pop(place)
    later = await log_in(http, PHONE_APP)
    answers = [await request for request in requests]

    assert revoked.status_code in ((204,) if by_client else ENDED)
    assert not await find_live(instances, http, find_issued(sessions, answers))
    for session in (of_bob, later):
        assert instances.knows_access_token(session[1]["access_token"])
        assert (await session[0].refresh(http, session[1]["refresh_token"])).status_code == 200


@pytest.mark.clause("decided-i7-revocation-is-final", "decided-revoke-all-covers", "spec-4.4-all-tokens")
async def test_concurrent_revoke_alls_leave_no_session(instances: InstancePair, http: httpx2.AsyncClient) -> None:
    for _ in range(3):
        sessions = [await log_in(http, app) for app in APPS]
        turns = [sessions[i % len(sessions)] for i in range(CONCURRENT_REQUESTS)]

        answers = await all_at_once(
            [until_available(partial(revoke_all, http, body["access_token"])) for _, body in turns]
        )

        assert {answer.status_code for answer in answers} <= set(ENDED)
        assert not await find_live(instances, http, sessions)
        assert not list(instances.store.scan_iter("revoked:*"))


@pytest.mark.clause("decided-revoke-all-later-tokens-live", "decided-i7-revocation-is-final")
async def test_login_during_revoke_all_is_wholly_live_or_dead(
    instances: InstancePair, http: httpx2.AsyncClient
) -> None:
    """The order of the two decides. A login that begins after the answer always lives."""
    session = await log_in(http, PHONE_APP)
    logins = [asyncio.ensure_future(MADE_SECRET.log_in(http, ALICE)) for _ in range(20)]
    revoked = asyncio.ensure_future(until_available(partial(revoke_all, http, session[1]["access_token"])))

    assert (await revoked).status_code in ENDED
    _, later = await log_in(http, MADE_SECRET)
    amid = [dict(tokens_of(await login)) for login in logins if (await login).status_code == 200]
    for body in amid:
        had_access = instances.knows_access_token(body["access_token"])
        assert had_access == ((await MADE_SECRET.refresh(http, body["refresh_token"])).status_code == 200)
    assert await is_live(instances, http, MADE_SECRET, later)
    assert not await is_live(instances, http, *session)


@pytest.mark.clause("decided-i7-revocation-is-final", "decided-revoke-any-generation", "decided-grace-does-not-revive")
@pytest.mark.clause("7009-2.1-immediate")
@pytest.mark.parametrize("place", PLACES)
async def test_revocation_ends_a_session_during_refreshes(
    instances: InstancePair, http: httpx2.AsyncClient, place: int
) -> None:
    other = await log_in(http, WEB_SHOP)
    session = await log_in(http, WEB_SHOP)

    requests = refresh_all(http, [session])
    revoke = partial(WEB_SHOP.revoke, http, session[1]["refresh_token"])
    requests.insert(place, asyncio.ensure_future(until_available(revoke)))
    revoked = await requests.pop(place)
    answers = [await request for request in requests]

    assert revoked.status_code == 200
    assert not await find_live(instances, http, find_issued([session], answers))
    assert instances.find_family(session[1]["refresh_token"]) is None
    assert await is_live(instances, http, *other)


@pytest.mark.clause("7009-2.1-immediate", "decided-revoke-access-token-alone", "spec-3-revoke-invalidates")
async def test_access_token_revoked_during_refreshes_dies_alone(
    instances: InstancePair, http: httpx2.AsyncClient
) -> None:
    for _ in range(3):
        client, body = await log_in(http, PHONE_APP)
        refreshes = refresh_all(http, [(client, body)])

        revoke = partial(client.revoke, http, body["access_token"])
        answers = await all_at_once([until_available(revoke) for _ in range(CONCURRENT_REQUESTS)])

        assert {200} == {answer.status_code for answer in answers}
        assert not instances.knows_access_token(body["access_token"])
        given = [tokens_of(await refresh)["access_token"] for refresh in refreshes]
        assert all(map(instances.knows_access_token, given))


@pytest.mark.clause("decided-revoke-all-issued-before", "decided-i7-revocation-is-final")
@pytest.mark.parametrize("place", [0, CONCURRENT_REQUESTS // 4, CONCURRENT_REQUESTS])
async def test_revocation_by_time_spares_newer_sessions(
    instances: InstancePair, http: httpx2.AsyncClient, worker: Worker, place: int
) -> None:
    alice = identify_user("main", ALICE.username)
    older = [await log_in(http, app) for app in (PHONE_APP, MADE_SECRET)]
    until_ms = await worker.families.read_clock_ms()
    while await worker.families.read_clock_ms() <= until_ms:
        pass
    younger = [await log_in(http, app) for app in (PHONE_APP, MADE_SECRET)]
    turns = [pair for both in zip(older, younger, strict=True) for pair in both]

    requests = refresh_all(http, turns)
    await asyncio.gather(*requests[:place])
    await worker.revocations.revoke_all(alice.shard, alice.digest, until_ms=until_ms)
    answers = [await request for request in requests]

    ends = [turns[i % len(turns)] in older for i in range(CONCURRENT_REQUESTS)]
    of_older = [answer for answer, is_older in zip(answers, ends, strict=True) if is_older]
    of_younger = [answer for answer, is_older in zip(answers, ends, strict=True) if not is_older]
    assert not await find_live(instances, http, find_issued(older, of_older))
    assert {answer.status_code for answer in of_younger} == {200}
    issued = find_issued(younger, of_younger)
    assert all(instances.knows_access_token(body["access_token"]) for _, body in issued)
    listed, _ = await worker.families.list_of_user(alice, 100)
    assert {digest for digest, _ in listed} == {digest_of(body) for _, body in younger}
    await worker.revocations.revoke_all(alice.shard, alice.digest)
    assert not await find_live(instances, http, issued)


def digest_of(body: dict[str, str]) -> str:
    name = KEYRING.parse_refresh_token(body["refresh_token"])
    assert name is not None
    return name.family_digest


@pytest.mark.clause("decided-late-replay-ends-family", "decided-ended-families", "decided-i1-one-winner")
async def test_concurrent_late_replays_end_the_session_once(instances: InstancePair, worker: Worker) -> None:
    for _ in range(5):
        user = User(realm="main", username="nobody@example.com")
        shard = user.identity.shard
        first = make_first_refresh_token(shard)
        await worker.families.start(
            login_of(user),
            client=PHONE,
            scope="realm:main role:enduser",
            secret_used=False,
            refresh_token=first,
            access_token=make_access_token(shard),
        )

        for generation in range(1, 9):
            assert await refresh(worker, first, generation) == "rotated"
        worker.redis.clock_offset_ms = lambda: 301_000
        verdicts = await asyncio.gather(
            *(refresh(worker, first, 1 + number % 8) for number in range(CONCURRENT_REQUESTS))
        )
        worker.redis.clock_offset_ms = lambda: 0

        assert sorted(verdicts) == ["replayed"] + ["unknown"] * (CONCURRENT_REQUESTS - 1)
        tombstone = str(instances.store.get(ended_key(shard, first.family_digest))).split("\n")
        assert tombstone[2:5] == ["replayed", "9", str(1 + verdicts.index("replayed") % 8)]


async def refresh(worker: Worker, first: RefreshToken, generation: int) -> str:
    outcome = await worker.families.spend(
        first._replace(generation=generation),
        client=PHONE,
        secret_used=False,
        wanted_scope="",
        access_token=make_access_token(first.shard),
    )
    return outcome.verdict


@pytest.mark.clause("decided-i7-revocation-is-final", "decided-seed-ends-sessions")
@pytest.mark.parametrize("place", [0, 3])
async def test_sweep_during_refreshes_leaves_no_older_session(
    instances: InstancePair, http: httpx2.AsyncClient, worker: Worker, place: int
) -> None:
    people = [ALICE, BOB]
    codes = [await make_code(worker, people[i % 2]) for i in range(CONCURRENT_REQUESTS)]
    sessions = [await log_in(http, PHONE_APP, person) for person in people]
    other = await log_in(http, WEB_SHOP)

    asked = [partial(PHONE_APP.exchange, http, code, PHONE_CALLBACK) for code in codes]
    exchanges = [asyncio.ensure_future(until_available(ask)) for ask in asked]
    refreshes = refresh_all(http, sessions)
    await asyncio.gather(*exchanges[:place])
    await worker.session_scan.end_sessions(["phone-app"], lambda _: "cli")

    exchanged = await asyncio.gather(*exchanges)
    refused = [answer for answer in exchanged if answer.status_code != 200]
    given = [(PHONE_APP, dict(tokens_of(answer))) for answer in exchanged if answer not in refused]
    for answer in refused:
        assert_error(answer, 400, "invalid_grant")
    assert not await find_live(instances, http, given)
    assert not await find_live(instances, http, find_issued(sessions, await asyncio.gather(*refreshes)))
    assert await is_live(instances, http, *other)
