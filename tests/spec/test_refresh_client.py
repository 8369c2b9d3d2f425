"""The client of a refresh over HTTP: it must own the family, and authenticate as when the family was made."""

from dataclasses import replace

import httpx2
import msgspec
import pytest
import redis

from service.crypto.keyring import hash_generated_secret
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, make_code, serving
from tests.support.clients_and_users import (
    ALICE,
    PHONE_APP,
    PHONE_CALLBACK,
    WEB_SHOP,
    OAuthClient,
    assert_error,
    tokens_of,
)


async def change_client(worker: Worker, app: OAuthClient, **changes: object) -> None:
    """Change a client's record as the console does. A service that starts afterwards sees the change at once."""
    client = await worker.registry.clients.find(app.client_id)
    assert client is not None
    changed = msgspec.structs.replace(client, **changes)
    await worker.registry.clients.put(changed)


@pytest.mark.clause("6749-6-client-authenticates", "6819-5.2.2.2-bound-to-client-id", "6749-3.2.1-client-authenticates")
@pytest.mark.parametrize("secret", [None, "", "wrong"])
async def test_a_client_with_a_secret_refreshes_only_with_it(http: httpx2.AsyncClient, secret: str | None) -> None:
    first = tokens_of(await WEB_SHOP.log_in(http, ALICE))["refresh_token"]

    assert_error(await replace(WEB_SHOP, client_secret=secret).refresh(http, first), 401, "invalid_client")
    assert (await WEB_SHOP.refresh(http, first)).status_code == 200


@pytest.mark.clause("decided-refresh-without-the-secret", "spec-4.2-refresh-secret-as-first")
async def test_session_made_with_a_secret_needs_it_to_refresh(
    make_settings: MakeSettings, clock: Clock, worker: Worker, store: redis.Redis
) -> None:
    async with serving(make_settings(), clock) as http:
        first = tokens_of(await WEB_SHOP.log_in(http, ALICE))["refresh_token"]
    (family,) = store.scan_iter("family:*")
    before = store.get(family)
    await change_client(worker, WEB_SHOP, client_secret_hash=None)

    async with serving(make_settings(), clock) as http:
        response = await replace(WEB_SHOP, client_secret=None).refresh(http, first)

    assert_error(response, 400, "invalid_grant")
    assert before == store.get(family)


@pytest.mark.clause("decided-client-with-secret-always-authenticates", "6749-10.2-authenticated-when-possible")
async def test_new_secret_is_needed_for_older_sessions_too(
    make_settings: MakeSettings, clock: Clock, worker: Worker
) -> None:
    async with serving(make_settings(), clock) as http:
        first = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
    await change_client(worker, PHONE_APP, client_secret_hash=hash_generated_secret("s" * 43))

    async with serving(make_settings(), clock) as http:
        assert_error(await PHONE_APP.refresh(http, first), 401, "invalid_client")
        assert (await replace(PHONE_APP, client_secret="s" * 43).refresh(http, first)).status_code == 200


@pytest.mark.clause("6749-5.2-unauthorized-client", "decided-order-right-to-grant")
async def test_a_client_that_lost_the_refresh_grant_cannot_refresh(
    make_settings: MakeSettings, clock: Clock, worker: Worker
) -> None:
    async with serving(make_settings(), clock) as http:
        first = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
    await change_client(worker, PHONE_APP, grant_types=("password",))

    async with serving(make_settings(), clock) as http:
        assert_error(await PHONE_APP.refresh(http, first), 400, "unauthorized_client")


@pytest.mark.clause("6749-10.3-client-limits-scope", "decided-reserved-roles")
async def test_scope_lost_by_the_client_is_never_granted(
    make_settings: MakeSettings, clock: Clock, worker: Worker
) -> None:
    async with serving(make_settings(), clock) as http:
        first = tokens_of(await PHONE_APP.log_in(http, ALICE, "realm:main role:organisation"))["refresh_token"]
    code = await make_code(worker, scope="realm:main role:device")
    await change_client(worker, PHONE_APP, scope="realm:main role:enduser")

    async with serving(make_settings(), clock) as http:
        assert_error(await PHONE_APP.refresh(http, first), 400, "invalid_grant")
        assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
