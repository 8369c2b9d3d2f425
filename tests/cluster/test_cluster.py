"""The same code on three masters: every script finds all its keys in one slot, whichever node that is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial

import httpx2
import pytest
from msgspec.structs import replace

from service.gateway.access_record import access_key
from service.protocol.scope import parse_scope
from service.protocol.user import identify_user
from service.redis_client.url import parse_redis_url
from service.store.client import StoreClient
from service.store.events import EventStream, get_position
from service.store.keys import family_key
from service.store.reports.session_count import estimate_session_count
from service.store.reports.session_scan import Session
from service.store.reports.token_inspection import EndedFamily, TokenInspection
from service.worker import Worker
from tests.cluster.nodes import Cluster
from tests.cluster.sessions import PEOPLE, Tokens, is_known, start_session
from tests.conftest import make_code
from tests.faults.deployment import LATEST_SECONDS, start_sessions
from tests.support.browser import (
    SESSIONS,
    SWITCH,
    Browser,
    Page,
    assert_refused,
    assert_sent_back,
    authorization_response,
    authorization_url,
    is_login_page,
)
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    MADE_SECRET,
    PHONE_APP,
    PHONE_CALLBACK,
    WEB_SHOP,
    UserCredentials,
    assert_error,
    revoke_all,
    tokens_of,
)
from tests.support.loop_time import LoopTime
from tests.support.waiting import until, until_status


async def register(worker: Worker, people: Sequence[UserCredentials]) -> None:
    """All with Alice's password, whose hash costs something."""
    alice = await worker.registry.find_user(identify_user(ALICE.realm, ALICE.username))
    assert alice is not None
    for credentials in people:
        await worker.registry.put_user(replace(alice, username=credentials.username))


@pytest.mark.clause("decided-redis-cluster", "decided-readyz")
async def test_a_service_on_a_cluster_is_seeded_and_ready(cluster_http: httpx2.AsyncClient) -> None:
    ready = await cluster_http.get("/readyz")

    assert ready.status_code == 200
    for client in (PHONE_APP, WEB_SHOP, MADE_SECRET):
        for credentials in (ALICE, BOB):
            assert (await client.log_in(cluster_http, credentials)).status_code == 200


@pytest.mark.clause("decided-i4-one-slot", "decided-redis-cluster")
async def test_the_users_of_this_file_are_spread_over_all_nodes(cluster: Cluster) -> None:
    """Otherwise the tests below would prove nothing."""
    assert {cluster.node_of(node_key(credentials)) for credentials in PEOPLE} == {0, 1, 2}


@pytest.mark.clause("decided-i4-three-masters", "decided-i4-one-slot", "decided-redis-cluster")
async def test_every_transition_of_every_user_stays_in_one_slot(
    cluster: Cluster, cluster_http: httpx2.AsyncClient, cluster_worker: Worker
) -> None:
    """A key in another slot would be refused by Redis, and the answer would be 500."""
    await register(cluster_worker, PEOPLE)

    async def live(credentials: UserCredentials) -> None:
        http = cluster_http
        first, second = [await start_session(cluster_worker, credentials) for _ in range(2)]
        refreshed = dict(tokens_of(await PHONE_APP.refresh(http, first["refresh_token"])))
        replayed = dict(tokens_of(await PHONE_APP.refresh(http, first["refresh_token"])))
        assert refreshed["refresh_token"] == replayed["refresh_token"]
        code = await make_code(cluster_worker, credentials)
        exchanged = dict(tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK)))
        assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
        assert is_known(cluster, exchanged) == (False, False)

        assert (await PHONE_APP.revoke(http, replayed["access_token"])).status_code == 200
        assert is_known(cluster, replayed) == (False, True)
        assert (await PHONE_APP.revoke(http, second["refresh_token"])).status_code == 200
        assert is_known(cluster, second) == (False, False)

        code = await make_code(cluster_worker, credentials)
        assert (await revoke_all(http, refreshed["access_token"])).status_code == 200
        for tokens in (first, refreshed, replayed):
            assert is_known(cluster, tokens) == (False, False)
        assert_error(await PHONE_APP.refresh(http, refreshed["refresh_token"]), 400, "invalid_grant")
        assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
        assert is_known(cluster, await start_session(cluster_worker, credentials)) == (True, True)

    await asyncio.gather(*(live(credentials) for credentials in PEOPLE))


@pytest.mark.clause("decided-i4-three-masters", "decided-i4-one-slot", "decided-redis-cluster")
@pytest.mark.clause("decided-revoke-all-covers-logins")
async def test_the_pages_work_for_users_on_every_node(
    cluster: Cluster, cluster_http: httpx2.AsyncClient, cluster_worker: Worker
) -> None:
    """The keys of a login lie on the node of its user."""
    people = PEOPLE[:15]
    assert {cluster.node_of(node_key(credentials)) for credentials in people} == {0, 1, 2}
    await register(cluster_worker, people)
    for credentials in people:
        await live_with_a_browser(cluster_http, credentials)

    kinds = {"browser", "consent"}
    keys = {kind: [str(key) for key in cluster.client.scan_iter(f"{kind}:*")] for kind in kinds}
    for kind, found in keys.items():
        assert {cluster.node_of(key) for key in found} == {0, 1, 2}, kind


async def live_with_a_browser(http: httpx2.AsyncClient, credentials: UserCredentials) -> None:
    browser, other = Browser(http), Browser(http)
    form = await browser.open(authorization_url())
    assert is_login_page(await browser.log_in(form, UserCredentials(credentials.username, "wrong")))
    page = await browser.log_in(form, credentials)
    assert_sent_back(await browser.deny(page), "access_denied")
    assert_refused(await browser.allow(page), 400, "answered")

    page = await browser.open_consent_page(authorization_url())
    code = authorization_response(await browser.allow(page))["code"]
    assert authorization_response(await browser.allow(page))["code"] == code
    tokens = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))
    assert_refused(await browser.allow(page), 400, "answered")

    listed = Page(await other.sign_in(credentials))
    (entry,) = [form for form in listed.forms if form.action == "/sessions/end"]
    await other.send(entry.action, entry.fields)
    assert_error(await PHONE_APP.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")
    assert is_login_page(await other.submit(await other.open(SESSIONS), "/sessions/sign-out", {}))

    switched = await browser.submit(await browser.open_consent_page(authorization_url()), SWITCH, {})
    page = await browser.log_in(switched, credentials)
    unused = await browser.get_code()
    assert is_login_page(await other.submit(await other.sign_in(credentials), "/sessions/end-all", {}))
    assert_refused(await browser.allow(page), 403, "signed_out")
    assert_error(await PHONE_APP.exchange(http, unused, PHONE_CALLBACK), 400, "invalid_grant")
    assert tokens_of(await PHONE_APP.exchange(http, await browser.get_code(credentials=credentials), PHONE_CALLBACK))


@pytest.mark.clause("decided-i4-three-masters", "decided-login-limit", "decided-limit-stops-checking")
async def test_throttles_count_on_a_cluster_though_address_and_user_lie_on_different_nodes(
    cluster_http: httpx2.AsyncClient,
) -> None:
    wrong = UserCredentials(ALICE.username, "wrong")
    statuses = [(await PHONE_APP.log_in(cluster_http, wrong)).status_code for _ in range(11)]

    assert statuses == [400] * 10 + [429]
    assert_error(await PHONE_APP.log_in(cluster_http, ALICE), 429, "invalid_grant")
    assert (await PHONE_APP.log_in(cluster_http, BOB)).status_code == 200


@pytest.mark.clause("decided-redis-cluster", "decided-client-limit")
async def test_wrong_client_secrets_count_on_a_cluster(cluster_http: httpx2.AsyncClient) -> None:
    form = {"client_id": WEB_SHOP.client_id, "client_secret": "wrong", "token": "x"}
    statuses = [(await cluster_http.post("/oauth2/v1/revoke", data=form)).status_code for _ in range(31)]

    assert statuses == [401] * 30 + [429]


async def test_the_stream_of_security_events_lies_on_one_node(cluster: Cluster, cluster_worker: Worker) -> None:
    """The service writes it, and the console reads it."""
    await cluster_worker.event_stream.append([b"1", b"2"])
    connection = StoreClient(parse_redis_url(cluster.url_of("console")))
    stream = EventStream(connection)
    entries = await stream.read_latest(2)

    assert [entry.text for entry in entries] == [b"1", b"2"]
    assert await stream.read(after=get_position(entries[:1])) == entries[1:]
    await connection.close()


@pytest.mark.clause("decided-redis-cluster")
async def test_a_sweep_ends_the_sessions_of_a_client_on_all_nodes_and_no_others(
    cluster: Cluster, cluster_worker: Worker
) -> None:
    narrowed = [await start_session(cluster_worker, credentials, "narrowed") for credentials in PEOPLE]
    others = [await start_session(cluster_worker, credentials, "other") for credentials in PEOPLE]

    def may_keep(session: Session) -> bool:
        return "role:enduser" not in str(parse_scope(session.scope))

    async def after_batch() -> None:
        pass

    ended = await cluster_worker.session_scan.end_sessions(["narrowed"], may_keep, after_batch=after_batch)

    assert ended == len(PEOPLE)
    assert {is_known(cluster, tokens) for tokens in narrowed} == {(False, False)}
    assert {is_known(cluster, tokens) for tokens in others} == {(True, True)}


@pytest.mark.clause("decided-redis-cluster", "decided-revoke-all-issued-before", "decided-token-inspection")
async def test_what_was_issued_up_to_a_time_ends_for_everybody_on_all_nodes_and_says_why(
    cluster: Cluster, cluster_worker: Worker
) -> None:
    older = [await start_session(cluster_worker, credentials) for credentials in PEOPLE]
    until_ms = await cluster_worker.families.read_clock_ms()
    cluster_worker.redis.clock_offset_ms = lambda: 1_000
    younger = [await start_session(cluster_worker, credentials) for credentials in PEOPLE]
    inspection = TokenInspection(cluster_worker.redis, cluster_worker.lifetimes)

    found = [each for batch in [batch async for batch in cluster_worker.session_scan.scan_subjects()] for each in batch]
    await cluster_worker.revocations.revoke_all_of(found, until_ms=until_ms, reason="console")

    identities = [identify_user("main", credentials.username) for credentials in PEOPLE]
    assert {(identity.shard, identity.subject) for identity in identities} == set(found)
    assert {is_known(cluster, tokens) for tokens in older} == {(False, False)}
    assert {is_known(cluster, tokens) for tokens in younger} == {(True, True)}
    for tokens in older:
        name = cluster_worker.keyring.parse_refresh_token(tokens["refresh_token"])
        assert name is not None
        ended = (await inspection.inspect_refresh_token(name)).family
        assert isinstance(ended, EndedFamily)
        assert ended.record.reason == "console"


@pytest.mark.clause("decided-redis-cluster")
async def test_more_requests_at_once_than_connections_are_all_served(
    cluster_http: httpx2.AsyncClient, cluster_worker: Worker
) -> None:
    """Requests wait for a connection, as on a single server."""
    tokens = await start_session(cluster_worker, PEOPLE[0])

    answers = await asyncio.gather(*(PHONE_APP.refresh(cluster_http, tokens["refresh_token"]) for _ in range(300)))

    assert Counter(answer.status_code for answer in answers) == {200: 300}


@pytest.mark.clause("decided-redis-cluster", "decided-redis-away", "decided-i8-fail-closed")
async def test_while_a_node_is_away_its_users_get_503_and_the_others_are_served(
    cluster: Cluster, cluster_http: httpx2.AsyncClient, cluster_worker: Worker, held_time: LoopTime
) -> None:
    with_registry = cluster.node_of("client:{registry}:phone-app")
    away = (with_registry + 1) % len(cluster.nodes)
    sessions = [(credentials, await start_session(cluster_worker, credentials)) for credentials in PEOPLE]
    lost = {credentials for credentials in PEOPLE if cluster.node_of(node_key(credentials)) == away}

    async def refresh(tokens: Tokens) -> int:
        return (await PHONE_APP.refresh(cluster_http, tokens["refresh_token"])).status_code

    for _, tokens in sessions:  # for these requests the service is connected to all nodes
        assert await refresh(tokens) == 200
    with cluster.nodes[away].frozen():
        asked = {credentials: asyncio.create_task(refresh(tokens)) for credentials, tokens in sessions}
        await until(lambda: {credentials for credentials in PEOPLE if not asked[credentials].done()} == lost)
        await held_time.advance_in_steps(LATEST_SECONDS)
        assert all(task.done() for task in asked.values())
        alive = await cluster_http.get("/healthz")

    assert {credentials: task.result() for credentials, task in asked.items()} == {
        credentials: 503 if credentials in lost else 200 for credentials in PEOPLE
    }
    assert alive.status_code == 200
    with held_time.running_at(1):
        for _, tokens in sessions:
            await until_status(partial(PHONE_APP.refresh, cluster_http, tokens["refresh_token"]), 200)


def node_key(credentials: UserCredentials) -> str:
    return f"family:{{{identify_user(credentials.realm, credentials.username).shard}}}:x"


async def test_sessions_are_counted_and_estimated_over_all_masters(cluster: Cluster, cluster_worker: Worker) -> None:
    def fill(numbers: range) -> None:
        pipeline = cluster.client.pipeline()  # type: ignore[no-untyped-call]
        for number in numbers:
            for key in (family_key, access_key):
                pipeline.set(key(f"{number % 4096:03x}", str(number)), "", px=60_000)
        pipeline.execute()

    fill(range(300))
    assert await estimate_session_count(cluster_worker.redis) == (300, 300)

    fill(range(300, 3_000))
    census = await estimate_session_count(cluster_worker.redis)
    assert census.sessions == pytest.approx(3_000, rel=0.15)
    assert census.access_tokens == pytest.approx(3_000, rel=0.15)


@pytest.mark.clause("decided-redis-cluster")
async def test_a_crowd_may_be_the_first_to_ask(cluster_worker: Worker) -> None:
    """The service has no map of the cluster yet and no connection."""
    assert len(await start_sessions(cluster_worker, "user", 20)) == 20
