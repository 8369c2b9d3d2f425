"""While the seed file is not in force, no refusal is final, and a failed try still counts."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
import redis

from service.protocol.user import identify_user
from service.store.keys import registry_key, user_key
from service.store.registry.seeds import BEING_APPLIED
from service.worker import Worker
from tests.conftest import MakeSettings
from tests.support.browser import Browser, authorization_url
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    PHONE_APP,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
    assert_error,
    delete_user,
    put_user,
    revoke_user,
)
from tests.support.invalidations import await_invalidations
from tests.support.loop_time import LoopTime
from tests.support.redis_monitor import ONE_SERVER
from tests.support.waiting import until_status

pytestmark = pytest.mark.clause("decided-seed-not-in-force")

SEED = registry_key("seed")
WRONG_SHOP = replace(WEB_SHOP, client_secret="wrong")


@pytest.fixture
async def mark(http: httpx2.AsyncClient, store: redis.Redis) -> str:
    """What the store has of the seed in force: the digest of its file and a mark."""
    found = store.hget(SEED, "file")
    assert isinstance(found, str)
    return found


@pytest.fixture(params=["", f"{BEING_APPLIED} "], ids=["before", "during"])
async def unseeded(
    request: pytest.FixtureRequest, worker: Worker, mark: str, store: redis.Redis
) -> AsyncIterator[None]:
    """The store was emptied, and another process applies the seed to it, or is about to."""
    async with worker.registry.make_lock_for("seed"):
        store.hdel(SEED, "file")
        if request.param:
            store.hset(SEED, "file", request.param)
        yield


@pytest.mark.usefixtures("unseeded")
@pytest.mark.parametrize("user", [UserCredentials(ALICE.username, "wrong"), UserCredentials("nobody@example.com", "x")])
async def test_a_failed_login_is_answered_503_and_counts(
    http: httpx2.AsyncClient, store: redis.Redis, user: UserCredentials
) -> None:
    answers = [await PHONE_APP.log_in(http, user) for _ in range(11)]

    assert [answer.status_code for answer in answers] == [503] * 10 + [429]
    assert answers[0].json()["error"] == "temporarily_unavailable"
    assert answers[0].headers["Retry-After"] == "1"


@pytest.mark.usefixtures("unseeded")
@pytest.mark.parametrize("client_id", [WEB_SHOP.client_id, "unknown"])
async def test_a_failed_client_authentication_is_answered_503(http: httpx2.AsyncClient, client_id: str) -> None:
    answer = await OAuthClient(client_id, "wrong").log_in(http, ALICE)

    assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")


@pytest.mark.usefixtures("unseeded")
async def test_seeded_users_log_in_during_a_seed(http: httpx2.AsyncClient) -> None:
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
    assert (await http.get("/healthz")).status_code == 200
    ready = await http.get("/readyz")

    assert (ready.status_code, set(ready.json())) == (503, {"status", "done", "of"})


@pytest.mark.usefixtures("unseeded")
async def test_page_of_an_unknown_client_is_temporary(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/authorization/?client_id=unknown&response_type=code")

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


@pytest.mark.usefixtures("unseeded")
async def test_a_missing_realm_is_no_final_refusal(http: httpx2.AsyncClient) -> None:
    page = await http.get(authorization_url(scope="realm:cep role:enduser"))
    refused = [
        await PHONE_APP.log_in(http, UserCredentials("carol", "x"), scope="realm:cep role:enduser"),
        await revoke_user(http, {"format": "iss_sub", "iss": "https://cep.example", "sub": "x"}),
        await http.post("/oauth2/v1/backchannel-logout/cep", data={"logout_token": "x"}),
    ]

    assert "error=temporarily_unavailable" in page.headers["location"]
    for answer in refused:
        assert_error(answer, 503, "temporarily_unavailable")


@pytest.mark.usefixtures("unseeded")
@pytest.mark.parametrize("body", [{"name": "Bob"}, {"password": "another password", "roles": ["enduser"]}])
async def test_no_program_changes_users_before_the_seed(
    http: httpx2.AsyncClient, store: redis.Redis, body: dict[str, object]
) -> None:
    """The user whom the seed may bring is neither missing, nor new, nor deleted."""
    store.delete(user_key(identify_user("main", BOB.username)))

    assert_error(await put_user(http, BOB.username, body), 503, "temporarily_unavailable")
    assert_error(await delete_user(http, BOB.username), 503, "temporarily_unavailable")


@ONE_SERVER
async def test_change_of_a_user_outlasts_the_loss_of_the_store(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis
) -> None:
    """The store is lost while the change waits for the lock."""
    async with worker.registry.make_lock():
        with store.monitor() as monitor:  # type: ignore[no-untyped-call]
            change = asyncio.create_task(put_user(http, BOB.username, {}, headers={"If-Match": "*"}))
            while "SET lock:" not in (await asyncio.to_thread(monitor.next_command))["command"]:
                continue
        store.flushall()

    assert_error(await change, 503, "temporarily_unavailable")


async def test_login_form_outlasts_the_loss_of_its_client(
    http: httpx2.AsyncClient, browser: Browser, worker: Worker, store: redis.Redis
) -> None:
    form = await browser.open(authorization_url())
    async with worker.registry.make_lock_for("seed"):
        store.hdel(SEED, "file")
        store.delete(registry_key("client", PHONE_APP.client_id))
        await await_invalidations(worker)

        assert (await browser.log_in(form)).status_code == 503


@pytest.mark.usefixtures("unseeded")
async def test_failures_before_the_seed_count_apart(
    http: httpx2.AsyncClient, http_worker: Worker, store: redis.Redis, mark: str
) -> None:
    """They stop the check of secrets, but they do not keep the client out afterwards."""
    answers = [await WRONG_SHOP.revoke(http, "x") for _ in range(32)]
    right = await WEB_SHOP.revoke(http, "x")
    counted = [store.get(key) for key in store.scan_iter("address:*")]
    store.hset(SEED, "file", mark)
    await http_worker.seed_keeper.apply()

    assert [answer.status_code for answer in [*answers, right]] == [503] * 33
    assert {answer.headers["Retry-After"] for answer in answers} == {"1"}
    assert "30" in counted
    assert (await WEB_SHOP.revoke(http, "x")).status_code == 200
    assert_error(await WRONG_SHOP.revoke(http, "x"), 401, "invalid_client")


async def test_refusals_are_final_while_a_changed_seed_is_applied(
    http: httpx2.AsyncClient, store: redis.Redis, mark: str
) -> None:
    store.hset(SEED, "file", f"{BEING_APPLIED} {mark.split()[1]}")

    assert_error(await WRONG_SHOP.revoke(http, "x"), 401, "invalid_client")
    assert_error(await PHONE_APP.log_in(http, replace(ALICE, password="wrong")), 400, "invalid_grant")
    assert (await http.get("/readyz")).status_code == 200


async def test_refusal_across_a_loss_is_temporary(
    http: httpx2.AsyncClient, http_worker: Worker, worker: Worker, store: redis.Redis
) -> None:
    """Another worker has applied the seed to the emptied store before this one looks."""
    assert_error(await WRONG_SHOP.revoke(http, "x"), 401, "invalid_client")
    store.flushall()
    await worker.seed_keeper.apply()

    assert_error(await WRONG_SHOP.revoke(http, "x"), 503, "temporarily_unavailable")
    await http_worker.seed_keeper.apply()
    assert_error(await WRONG_SHOP.revoke(http, "x"), 401, "invalid_client")


async def test_each_instance_applies_its_own_seed_after_a_loss(
    http: httpx2.AsyncClient, make_settings: MakeSettings, store: redis.Redis, tmp_path: Path, loop_time: LoopTime
) -> None:
    """An instance with another file was the first to see that the store was empty."""
    file = tmp_path / "seed.yaml"
    file.write_text("clients: [{client_id: reader}]")
    first = Worker(make_settings(TOKEN_SERVICE_SEED_FILE=str(file)))
    store.flushall()
    await first.seed_keeper.apply()
    await first.close()

    assert_error(await WEB_SHOP.revoke(http, "x"), 503, "temporarily_unavailable")
    with loop_time.running_at(1):
        await until_status(lambda: WEB_SHOP.revoke(http, "x"), 200)


async def test_mark_comes_to_a_store_without_one(worker: Worker, mark: str, store: redis.Redis) -> None:
    """An earlier version of the service left the digest alone."""
    store.hset(SEED, "file", mark.split()[0])
    await worker.seed_keeper.apply()

    assert await worker.seed_keeper.is_in_force()


async def test_worker_counts_on_its_own_application_only(worker: Worker, mark: str) -> None:
    """It may have another file than the one that is in force."""
    assert not await worker.seed_keeper.is_in_force()
    await worker.seed_keeper.apply()
    assert await worker.seed_keeper.is_in_force()


CONTENDERS = 50
LOSSES = 3


@pytest.mark.single_server("the servers of a cluster are not emptied at the same moment")
async def test_loss_of_the_store_gives_no_final_refusal(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis, loop_time: LoopTime
) -> None:
    """Clients and users who are in the seed are asked for all the time, while another worker applies it again."""
    statuses: set[int] = set()

    async def ask_until_done(number: int) -> None:
        while is_going_on:
            answer = await (WEB_SHOP.revoke(http, "x") if number else PHONE_APP.log_in(http, ALICE))
            statuses.add(answer.status_code)

    is_going_on = True
    contenders = [asyncio.create_task(ask_until_done(number)) for number in range(CONTENDERS)]
    with loop_time.running_at(1):
        for _ in range(LOSSES):
            store.flushall()
            await worker.seed_keeper.apply()
            await until_status(lambda: WEB_SHOP.revoke(http, "x"), 200)
    is_going_on = False
    await asyncio.gather(*contenders)

    assert statuses <= {200, 503}
