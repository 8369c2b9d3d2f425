"""The roles of users of an external realm, and changes during a login."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import msgspec
import pytest
import redis

from service.protocol.user import User
from service.store.keys import registry_key
from service.worker import Worker
from tests.realms.login_steps import SUB, RegisterRealm, log_in_with_password
from tests.realms.password_logins import assert_provider_unavailable, count_sessions, guess, log_in, sign
from tests.support.clients_and_users import WEB_SHOP, assert_error
from tests.support.fake_provider import PASSWORD, TOKEN, USERNAME, FakeProvider, Held, Reply
from tests.support.invalidations import await_invalidations
from tests.support.loop_time import LoopTime

PROVIDER_SCOPE = "realm:cep role:organisation"


@asynccontextmanager
async def held_login(provider: FakeProvider, login: asyncio.Task[httpx2.Response]) -> AsyncIterator[None]:
    """Hold a login at the provider inside the block. Its response is released at the end."""
    released = asyncio.Event()
    tokens = {"access_token": "t", "token_type": "Bearer", "id_token": sign(provider)}
    provider.answer(TOKEN, Held(Reply(200, tokens), released))
    await provider.await_requests(TOKEN)
    assert not login.done()
    yield
    released.set()


@pytest.mark.clause("decided-external-roles", "decided-cep-password-grant")
async def test_a_list_of_users_names_them_as_the_provider_does_and_not_as_they_type(
    http: httpx2.AsyncClient, register_realm: RegisterRealm
) -> None:
    await register_realm(
        {"username": USERNAME, "realm": "cep", "roles": ["organisation"]},
        {"username": SUB, "realm": "main", "password": "x" * 8, "roles": ["organisation"]},
    )

    assert_error(await log_in(http, PROVIDER_SCOPE), 400, "invalid_scope")


@pytest.mark.clause("decided-disabled-user")
async def test_a_disabled_user_is_answered_like_a_wrong_password_though_the_provider_says_yes(
    http: httpx2.AsyncClient, cep: None, worker: Worker, store: redis.Redis
) -> None:
    wrong = await guess(http)
    await worker.registry.put_user(User(realm="cep", username=SUB, roles=("enduser",), disabled=True))
    await await_invalidations(worker)

    disabled = await log_in(http)

    assert (400, wrong.content) == (disabled.status_code, disabled.content)
    assert count_sessions(store) == 0


@pytest.mark.clause("decided-client-scope", "decided-order-client-scope-before-throttle")
async def test_a_client_without_the_realm_is_refused_before_anybody_is_asked(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None
) -> None:
    assert_error(await log_in_with_password(http, USERNAME, PASSWORD, WEB_SHOP), 400, "invalid_scope")
    assert provider.requests == []


@pytest.mark.clause("decided-external-follows-the-record", "decided-realm-without-login", "spec-2.2-realms")
async def test_a_realm_that_is_configured_while_the_service_runs_is_there_within_a_second(
    http: httpx2.AsyncClient, register_realm: RegisterRealm, loop_time: LoopTime
) -> None:
    assert_error(await log_in(http), 400, "invalid_scope")

    await register_realm()
    loop_time.advance(1)

    assert (await log_in(http)).status_code == 200


@pytest.mark.clause("decided-external-follows-the-record", "decided-external-realm-down")
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"username_claim": "email"}, id="another claim"),
        pytest.param(None, id="no realm any more"),
    ],
)
async def test_a_realm_that_changes_while_its_provider_thinks_gives_no_tokens(
    http: httpx2.AsyncClient,
    provider: FakeProvider,
    cep: None,
    worker: Worker,
    store: redis.Redis,
    changes: dict[str, object] | None,
) -> None:
    record = await worker.registry.find_realm("cep")
    assert record is not None
    login = asyncio.create_task(log_in(http))
    async with held_login(provider, login):
        if changes is None:
            store.delete(registry_key("realm", "cep"))
        else:
            await worker.registry.put_realm("cep", msgspec.structs.replace(record, **changes))
        await await_invalidations(worker)

    assert_provider_unavailable(await login)

    assert count_sessions(store) == 0


@pytest.mark.clause("decided-disabled-user")
async def test_a_user_who_is_disabled_while_the_provider_thinks_gets_no_tokens(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None, worker: Worker, store: redis.Redis
) -> None:
    login = asyncio.create_task(log_in(http))
    async with held_login(provider, login):
        await worker.registry.put_user(User(realm="cep", username=SUB, roles=("enduser",), disabled=True))
        await await_invalidations(worker)

    assert_error(await login, 400, "invalid_grant")

    assert count_sessions(store) == 0
