"""Entries removed from the seed file, over HTTP: the sessions that depended on them end."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from service.worker import Worker
from tests.conftest import SEED, Clock, MakeSettings, serving, serving_worker
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    PHONE_APP,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
    assert_error,
    is_live,
    tokens_of,
)


@pytest.mark.clause("decided-user-change-ends-tokens", "decided-seed-ends-sessions", "decided-ended-families")
@pytest.mark.parametrize(
    ("client", "credentials", "before", "after", "cause"),
    [
        pytest.param(
            PHONE_APP,
            BOB,
            "password: hunter2 hunter2",
            "password: hunter3 hunter3",
            "password_set",
            id="a new password",
        ),
        pytest.param(
            PHONE_APP,
            ALICE,
            "roles: [enduser, organisation]",
            "roles: [enduser]",
            "role_removed",
            id="a role of the user",
        ),
        pytest.param(
            WEB_SHOP,
            BOB,
            "role:enduser role:partner\n    default_scope: realm:main role:enduser",
            "role:partner\n    default_scope: realm:main role:partner",
            "client_changed",
            id="a scope of the client",
        ),
        pytest.param(
            WEB_SHOP,
            BOB,
            "grant_types: [password, authorization_code",
            "grant_types: [authorization_code",
            "client_changed",
            id="a grant of the client",
        ),
    ],
)
async def test_session_ends_with_its_scope(
    make_settings: MakeSettings,
    clock: Clock,
    registry: None,
    store: redis.Redis,
    tmp_path: Path,
    client: OAuthClient,
    credentials: UserCredentials,
    before: str,
    after: str,
    cause: str,
) -> None:
    seed = SEED.read_text(encoding="utf-8")
    edited = tmp_path / "seed.yaml"
    edited.write_text(seed.replace(before, after), encoding="utf-8")
    async with serving(make_settings(), clock) as http:
        tokens = tokens_of(await client.log_in(http, credentials))

    worker = Worker(make_settings(TOKEN_SERVICE_SEED_FILE=str(edited)), lambda: clock.offset_ms)
    worker.pending_revocations.scan_delay_seconds = 0  # no request is under way
    async with serving_worker(worker) as http:
        assert edited.read_text(encoding="utf-8") != seed
        assert not is_live(store, tokens["access_token"])
        assert_error(await client.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")
    (tombstone,) = store.scan_iter("ended:*")
    assert str(store.get(tombstone)).split("\n")[2] == cause


@pytest.mark.clause("decided-user-change-ends-tokens")
async def test_sessions_of_other_users_stay(
    make_settings: MakeSettings, clock: Clock, registry: None, store: redis.Redis, tmp_path: Path
) -> None:
    edited = tmp_path / "seed.yaml"
    edited.write_text(SEED.read_text(encoding="utf-8").replace("hunter2", "hunter3"), encoding="utf-8")
    async with serving(make_settings(), clock) as http:
        tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))

    async with serving(make_settings(TOKEN_SERVICE_SEED_FILE=str(edited)), clock) as http:
        assert is_live(store, tokens["access_token"])
        assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200
        assert (await PHONE_APP.log_in(http, UserCredentials(BOB.username, "hunter3 hunter3"))).status_code == 200
        assert_error(await PHONE_APP.log_in(http, BOB), 400, "invalid_grant")
