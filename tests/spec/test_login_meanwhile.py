"""Rights that a client loses during a login, over HTTP: the login no longer grants them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
import redis

from service.protocol.user import identify_user
from service.store.keys import login_key, registry_key
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving
from tests.support.clients_and_users import ALICE, PHONE_APP, assert_error
from tests.support.invalidations import await_invalidations
from tests.support.waiting import until

COUNTER = login_key(identify_user(ALICE.realm, ALICE.username))


def count_script_calls(store: redis.Redis) -> int:
    statistics: dict[str, dict[str, int]] = store.info("commandstats")
    return statistics.get("cmdstat_evalsha", {"calls": 0})["calls"]


def occupy_password_checks(store: redis.Redis) -> None:
    """Occupy as many checks of Alice's password as are allowed at once."""
    store.set("lease:" + COUNTER, 1_000, px=60_000)


@pytest.mark.clause("6749-10.3-client-limits-scope", "6749-5.2-unauthorized-client")
@pytest.mark.parametrize(
    ("changes", "status", "error"),
    [
        pytest.param({"grant_types": ("refresh_token",)}, 400, "unauthorized_client", id="the grant"),
        pytest.param({"scope": "realm:main role:device"}, 400, "invalid_scope", id="the scope"),
        pytest.param(None, 401, "invalid_client", id="its registration"),
    ],
)
@pytest.mark.clause("decided-client-looked-at-again")
async def test_waiting_login_does_not_get_scope_lost_by_its_client(
    make_settings: MakeSettings,
    clock: Clock,
    worker: Worker,
    store: redis.Redis,
    changes: dict[str, object] | None,
    status: int,
    error: str,
) -> None:
    client = await worker.registry.find_client(PHONE_APP.client_id)
    assert client is not None
    async with serving(make_settings(), clock) as http:
        assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
        families = set(store.scan_iter("family:*"))
        occupy_password_checks(store)
        calls = count_script_calls(store)
        login = asyncio.create_task(PHONE_APP.log_in(http, ALICE))
        await until(lambda: count_script_calls(store) > calls)
        if changes is None:
            store.delete(registry_key("client", PHONE_APP.client_id))
        else:
            narrowed = msgspec.structs.replace(client, **changes)
            await worker.registry.put_client(narrowed)
        await await_invalidations(worker)
        store.delete(COUNTER, "lease:" + COUNTER)

        assert_error(await login, status, error)

    assert set(store.scan_iter("family:*")) == families
    assert not store.exists(COUNTER)
