"""An answer 200 during the move of a slot holds for good, and all else is a 503 that may be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import httpx2
import msgspec
import pytest
from _pytest.mark import ParameterSet

from service.admin.context import AdminContext, open_context
from service.app import build_app
from service.config.settings import Settings, load_settings
from service.crypto.keyring import Keyring
from service.gateway import BearerLookup
from service.observability import metrics
from service.protocol.client import AUTHORIZATION_CODE
from service.protocol.user import identify_user
from service.redis_client.deadline import DEADLINE_SECONDS, StoreUnavailable
from service.redis_client.slots import RETRY_DELAY_SECONDS
from service.store.keys import family_key, index_key
from service.store.reports.session_scan import Session
from service.store.sessions.families import EndReason
from service.store.sessions.revocations import Revocations
from service.worker import Worker
from tests.admin.conftest import Answer, type_in
from tests.cluster.moving import moving_slot
from tests.cluster.nodes import Cluster, running_cluster
from tests.conftest import SECRET_KEY, SEED, http_client_for, make_code, running_lifespan
from tests.faults.deployment import start_sessions
from tests.gateway.watching import settle, watch
from tests.store.interruptions import BreakingConnection
from tests.support.at_rest import give_sid
from tests.support.clients_and_users import (
    ALICE,
    PHONE_APP,
    PHONE_CALLBACK,
    UserCredentials,
    access_key_of,
    assert_error,
    put_user,
    revoke_all,
    revoke_user,
    tokens_of,
    verify,
)
from tests.support.loop_time import LoopTime
from tests.support.metrics_scrape import Scrape
from tests.support.servers import REDIS_6, get_other_server, other_servers, server_binary
from tests.support.waiting import result_of, until

KEYRING = Keyring((SECRET_KEY.encode(),))
SID = "a-login"
THE_MACHINES = "the machine's"
"""The server that all other tests use."""

MOVED: dict[str, Callable[[str], bool]] = {
    "nothing": lambda key: False,
    "the family": lambda key: key.startswith("family:"),
    "the access tokens": lambda key: key.startswith("access:"),
    "what names the others": lambda key: key.startswith(("index:", "revoked:", "mark:")),
    "all but the family": lambda key: not key.startswith("family:"),
    "all but the access tokens": lambda key: not key.startswith("access:"),
    "everything": lambda key: True,
}
"""The keys of the slot that lie on the other node already."""


@dataclass
class ClusterDeployment:
    cluster: Cluster
    settings: Settings
    worker: Worker
    http: httpx2.AsyncClient
    users: int = 0

    def make_user(self) -> UserCredentials:
        """Return a new user with Alice's password, whom `register` adds."""
        self.users += 1
        return UserCredentials(f"mover-{self.users}@example.com", ALICE.password)

    async def start(self) -> Held:
        """Return what a new user has: two access tokens of a session, refreshed once, and a code."""
        credentials = self.make_user()
        alice = await self.worker.registry.users.find(identify_user(ALICE.realm, ALICE.username))
        assert alice is not None
        user = msgspec.structs.replace(
            alice, username=credentials.username, id=credentials.username, roles=("enduser",)
        )
        ((access_token, refresh_token),) = await start_sessions(self.worker, credentials.username, 1)
        await self.worker.registry.users.put(user)
        await self.worker.registry.ids.put(user.id, user.identity)
        refreshed = tokens_of(await PHONE_APP.refresh(self.http, refresh_token))
        code = await make_code(self.worker, credentials)
        return Held(credentials, [access_token, refreshed["access_token"]], refreshed["refresh_token"], code)

    async def begin_to_revoke(self, held: Held) -> None:
        """A revokeAll that got no further than its mark."""
        identity = identify_user(held.credentials.realm, held.credentials.username)
        interrupted = Revocations(BreakingConnection(self.settings, calls=1), max_keys=0)
        with pytest.raises(StoreUnavailable):
            await interrupted.revoke_all(identity.shard, identity.digest)

    def list_live(self, held: Held) -> list[bool]:
        """Return whether the family and each of the access tokens is there. The slot must have moved."""
        return [bool(self.cluster.client.exists(key)) for key in self.list_keys(held)]

    def list_keys(self, held: Held) -> list[str]:
        """Return the keys of the family and of each of the access tokens."""
        refresh_token = KEYRING.parse_refresh_token(held.refresh_token)
        assert refresh_token is not None
        return [family_key(refresh_token.shard, refresh_token.family_digest), *map(access_key_of, held.access_tokens)]


@dataclass
class Held:
    """The tokens that a client holds for a user."""

    credentials: UserCredentials
    access_tokens: list[str]
    refresh_token: str
    code: str

    @property
    def sub_id(self) -> dict[str, str]:
        return {"format": "email", "email": self.credentials.username}

    @property
    def key(self) -> str:
        """Return one of the user's keys."""
        identity = identify_user(self.credentials.realm, self.credentials.username)
        return index_key(identity.shard, identity.digest)


async def end_provider_login(deployment: ClusterDeployment, held: Held) -> httpx2.Response:
    """End the login at an identity provider that the session came from, and answer as an endpoint would."""
    identity = identify_user(held.credentials.realm, held.credentials.username)
    try:
        await deployment.worker.revocations.end_provider_login(identity.shard, identity.digest, SID)
    except StoreUnavailable:
        body = {"error": "temporarily_unavailable", "error_description": "The slot is moving."}
        return httpx2.Response(503, headers={"cache-control": "no-store, no-cache", "pragma": "no-cache"}, json=body)
    return httpx2.Response(200)


Operation = Callable[[ClusterDeployment, Held], Awaitable[httpx2.Response]]
ALL, NOTHING = [True] * 3, [False] * 3
OPERATIONS: dict[str, tuple[Operation, list[bool]]] = {
    "revoke of a refresh token": (
        lambda deployment, held: PHONE_APP.revoke(deployment.http, held.refresh_token),
        NOTHING,
    ),
    "revoke of an access token": (
        lambda deployment, held: PHONE_APP.revoke(deployment.http, held.access_tokens[1]),
        [True, True, False],
    ),
    "revokeAll": (lambda deployment, held: revoke_all(deployment.http, held.access_tokens[1]), NOTHING),
    "revokeAll that was begun": (lambda deployment, held: revoke_all(deployment.http, held.access_tokens[1]), NOTHING),
    "end of a login at a provider": (end_provider_login, NOTHING),
    "revocation by another system": (lambda deployment, held: revoke_user(deployment.http, held.sub_id), NOTHING),
    "refresh": (lambda deployment, held: PHONE_APP.refresh(deployment.http, held.refresh_token), ALL),
    "exchange": (lambda deployment, held: PHONE_APP.exchange(deployment.http, held.code, PHONE_CALLBACK), ALL),
    "login": (lambda deployment, held: PHONE_APP.log_in(deployment.http, held.credentials), ALL),
}
"""Requests, each with what it leaves of a family and its two access tokens."""


def make_server_param(name: str) -> ParameterSet:
    return pytest.param(name, marks=pytest.mark.long if name == REDIS_6 else ())


@pytest.fixture(scope="module", params=map(make_server_param, (THE_MACHINES, *other_servers())))
def built_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    binary = server_binary() if request.param == THE_MACHINES else get_other_server(request.param)
    with running_cluster(tmp_path_factory.mktemp("cluster"), binary=binary) as cluster:
        yield cluster


@pytest.fixture
async def deployment(built_cluster: Cluster) -> AsyncIterator[ClusterDeployment]:
    async with running_deployment(built_cluster) as deployment:
        yield deployment


@asynccontextmanager
async def running_deployment(cluster: Cluster, **variables: str) -> AsyncIterator[ClusterDeployment]:
    """The cluster is emptied first."""
    for server in cluster.nodes:
        with server.connect() as node:
            node.flushall()
    settings = load_settings(
        {
            "REDIS_URL": cluster.url,
            "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY,
            "TOKEN_SERVICE_SEED_FILE": str(SEED),
            "LOG_LEVEL": "error",
            **variables,
        }
    )
    worker = Worker(settings, lambda: 0)
    app = build_app(worker)
    async with running_lifespan(app), http_client_for(app) as http:
        yield ClusterDeployment(cluster, settings, worker, http)
    await worker.close()


@pytest.mark.clause("decided-i4-one-slot", "decided-i7-revocation-is-final", "decided-redis-cluster")
@pytest.mark.single_server("it brings a cluster along")
@pytest.mark.parametrize("name", OPERATIONS)
async def test_answer_during_a_slot_move_is_durable(
    deployment: ClusterDeployment, held_time: LoopTime, name: str
) -> None:
    await check_answers(deployment, held_time, name)


async def ask_until_too_late(held_time: LoopTime, requests: Sequence[Awaitable[httpx2.Response]]) -> list[Any]:
    """Return the answers. No time passes before each request is answered, or is refused and waits for its slot."""
    before = count_refusals()
    asked = [asyncio.ensure_future(request) for request in requests]
    await until(lambda: count_refusals() - before == sum(not request.done() for request in asked))
    await held_time.advance_in_steps(DEADLINE_SECONDS)
    return await asyncio.gather(*asked)


async def check_answers(deployment: ClusterDeployment, held_time: LoopTime, name: str) -> None:
    """The operation is tried for users whose keys are halved in every way."""
    operation, is_left = OPERATIONS[name]

    people = [await deployment.start() for _ in MOVED]
    if operation is end_provider_login:
        for held in people:
            give_sid(deployment.cluster.client, deployment.list_keys(held)[0], SID)
    if name == "revokeAll that was begun":
        await asyncio.gather(*map(deployment.begin_to_revoke, people))
    with ExitStack() as stack:
        for held, is_moved in zip(people, MOVED.values(), strict=True):
            stack.enter_context(moving_slot(deployment.cluster, held.key)).move_keys(is_moved)
        answers = await ask_until_too_late(held_time, [operation(deployment, held) for held in people])
    statuses = [answer.status_code for answer in answers]
    for held, answer in zip(people, answers, strict=True):
        if not answer.is_success:
            assert_error(answer, 503, "temporarily_unavailable")
            assert (await operation(deployment, held)).is_success
        assert deployment.list_live(held) == is_left
    assert (503 in statuses) is (name != "revoke of an access token")  # this request touches one key


@pytest.mark.clause("decided-i7-revocation-is-final", "decided-redis-cluster")
@pytest.mark.single_server("it brings a cluster along")
async def test_sweep_finds_records_of_moving_slots(deployment: ClusterDeployment) -> None:
    deployment.worker.redis.scan_retry_delay_seconds = 0
    deployment.worker.redis.max_looks = 1_000_000
    people = [await deployment.start() for _ in range(12)]

    judged = list[Session]()

    def judge(session: Session) -> EndReason | None:
        """Spare the codes, so that each look at the moving slot finds one."""
        judged.append(session)
        return None if session.grant_type == AUTHORIZATION_CODE else "cli"

    with moving_slot(deployment.cluster, people[0].key) as moving:
        moving.move_keys(lambda key: key.startswith("access:"))
        sweep = asyncio.create_task(deployment.worker.session_scan.end_sessions(["phone-app"], judge))
        await until(lambda: len(judged) > len(people) + 3, "several looks")
        assert not sweep.done()
        moving.move_keys()
    ended = await sweep

    assert ended >= len(people)
    assert [deployment.list_live(held) for held in people] == [NOTHING] * len(people)


@pytest.mark.clause("decided-redis-cluster")
@pytest.mark.single_server("it brings a cluster along")
async def test_half_moved_slot_is_reported_and_delays_no_other(
    deployment: ClusterDeployment, held_time: LoopTime
) -> None:
    held, other = await deployment.start(), await deployment.start()
    moved_token, left_token = held.access_tokens

    with moving_slot(deployment.cluster, held.key) as moving:
        moving.move_keys(lambda key: key == access_key_of(moved_token))
        (refused,) = await ask_until_too_late(held_time, [PHONE_APP.refresh(deployment.http, held.refresh_token)])
        assert_error(refused, 503, "temporarily_unavailable")
        for token in (moved_token, left_token):
            assert (await verify(deployment.http, token)).status_code == 200
        refreshed = await PHONE_APP.refresh(deployment.http, other.refresh_token)
        assert refreshed.status_code == 200
        told = await ask_doctor(deployment.cluster)
        moving.forget_to_give()
        told += await ask_doctor(deployment.cluster)
    about_slot = [(finding["level"], finding["message"]) for finding in told if str(moving.slot) in finding["message"]]
    assert [level for level, _ in about_slot] == ["error", "error"]
    assert ["no longer reports" in says for _, says in about_slot] == [False, True]
    assert not any(str(moving.slot) in finding["message"] for finding in await ask_doctor(deployment.cluster))
    assert (await PHONE_APP.refresh(deployment.http, held.refresh_token)).status_code == 200


@pytest.mark.clause("decided-i7-revocation-is-final", "decided-redis-cluster")
@pytest.mark.single_server("it brings a cluster along")
async def test_a_rename_in_a_moving_slot_is_finished_by_a_repetition(
    deployment: ClusterDeployment, held_time: LoopTime
) -> None:
    """The former name is marked, but its sessions cannot end yet. The id leads to both names meanwhile."""
    held = await deployment.start()
    former, registry = held.credentials, deployment.worker.registry
    renamed = replace(former, username=f"renamed-{former.username}")
    rename = partial(put_user, deployment.http, former.username, {"username": renamed.username})
    await registry.seeds.put(identify_user("main", former.username), "{}")

    with moving_slot(deployment.cluster, held.key) as moving:
        moving.move_keys(MOVED["what names the others"])
        assert_error(await held_time.advance_until_done(rename()), 503, "temporarily_unavailable")
        holders = [user.digest for user in await registry.ids.find(former.username)]
        assert holders == [identify_user("main", name).digest for name in (former.username, renamed.username)]

    assert (await rename()).status_code == 200
    assert deployment.list_live(held) == NOTHING
    assert (await PHONE_APP.log_in(deployment.http, renamed)).status_code == 200
    assert [user.digest for user in await registry.ids.find(former.username)] == holders[1:]


def count_refusals() -> float:
    return Scrape(metrics.render().decode()).sum("token_service_redis_moving_slot_rejections_total")


async def ask_doctor(cluster: Cluster) -> Any:
    return (await ask_console(cluster, "doctor", "--json")).json


def make_impatient_context() -> AdminContext:
    """A console that looks at all keys a few times only, without a pause."""
    context = open_context()
    context.redis.max_looks = 3
    context.redis.scan_retry_delay_seconds = 0
    return context


async def ask_console(cluster: Cluster, *words: str) -> Answer:
    environment = {"REDIS_URL": cluster.url, "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY}
    return await asyncio.to_thread(type_in, *words, environment=environment, make_context=make_impatient_context)


@pytest.mark.clause("decided-redis-cluster")
@pytest.mark.single_server("it brings a cluster along")
async def test_a_refresh_waits_for_its_slot_and_is_served(deployment: ClusterDeployment, held_time: LoopTime) -> None:
    """The refresh waits for one more pause after the slot has arrived, and no longer."""
    held, before = await deployment.start(), count_refusals()
    with moving_slot(deployment.cluster, held.key) as moving:
        moving.move_keys(lambda key: key.startswith("family:"))
        refresh = asyncio.ensure_future(PHONE_APP.refresh(deployment.http, held.refresh_token))
        await until(lambda: refresh.done() or count_refusals() > before)
        assert not refresh.done()

    await held_time.advance_in_steps(2 * RETRY_DELAY_SECONDS)
    await until(refresh.done, "the refresh to be sent again")
    assert (await refresh).status_code == 200


@pytest.mark.clause("decided-streams-end", "decided-redis-cluster")
@pytest.mark.single_server("it brings a cluster along")
@pytest.mark.parametrize("is_moving", [True, False], ids=["during the move", "after the move"])
async def test_watch_ends_in_a_slot_that_moves(
    deployment: ClusterDeployment, held_time: LoopTime, is_moving: bool
) -> None:
    """The token is revoked where it then is. The other one lives on, and its watch goes on."""
    held = await deployment.start()
    kept, revoked = held.access_tokens
    async with BearerLookup(deployment.cluster.url) as bearer:
        going_on, ended = await watch(bearer, kept), await watch(bearer, revoked)
        with held_time.running_at(1):
            with moving_slot(deployment.cluster, held.key) as moving:
                moving.move_keys()
                if is_moving:
                    assert (await PHONE_APP.revoke(deployment.http, revoked)).status_code == 200
                    assert await result_of(ended) == "revoked"
            if not is_moving:
                assert (await PHONE_APP.revoke(deployment.http, revoked)).status_code == 200
            assert await result_of(ended) == "revoked"
            await settle(bearer)
        assert not going_on.done()
