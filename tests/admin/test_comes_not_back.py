"""Changes made at the console persist: no restart, old seed file or second instance reverts them."""

from pathlib import Path

import httpx2
import pytest
import redis

from service.protocol.user import identify_user
from service.store.keys import registry_key
from service.store.sessions.families import UserEnding
from service.worker import PENDING_REVOCATIONS_SECONDS, Worker
from tests.admin.conftest import Admin, is_live
from tests.conftest import SEED, Clock, MakeSettings, serving
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, WEB_SHOP, OAuthClient, UserCredentials
from tests.support.loop_time import LoopTime
from tests.support.waiting import until

NEW_PASSWORD = UserCredentials(ALICE.username, "a new password")


@pytest.fixture
def later_seed_file(tmp_path: Path) -> str:
    """Return the seed file of a later deployment: the same entries and one more."""
    file = tmp_path / "seed.yaml"
    file.write_text(SEED.read_text() + "  - {username: new@example.com, password: new and long, roles: [enduser]}\n")
    return str(file)


async def log_in_statuses(http: httpx2.AsyncClient, new_secret: str) -> list[int]:
    """Log in with the old and the new secret, the deleted client, the disabled user, and both passwords."""
    attempts = [
        (WEB_SHOP, ALICE),
        (OAuthClient("web-shop", new_secret), NEW_PASSWORD),
        (OAuthClient("made-secret", "m" * 43), NEW_PASSWORD),
        (PHONE_APP, BOB),
        (PHONE_APP, ALICE),
        (PHONE_APP, NEW_PASSWORD),
    ]
    return [(await client.log_in(http, person)).status_code for client, person in attempts]


@pytest.mark.clause("decided-seed-keeps-console-changes")
async def test_restart_and_old_seed_keep_console_changes(
    admin: Admin, make_settings: MakeSettings, clock: Clock, later_seed_file: str
) -> None:
    rotated = await admin("client", "rotate-secret", "web-shop", "--json", "--yes")
    await admin("client", "delete", "made-secret", "--yes")
    await admin("user", "disable", BOB.username, "--yes")
    await admin("user", "set-password", ALICE.username, "--yes", typed=NEW_PASSWORD.password + "\n")
    secret, expected = rotated.json["client_secret"], [401, 200, 401, 400, 400, 200]

    for file in (str(SEED), later_seed_file, str(SEED)):
        async with serving(make_settings(TOKEN_SERVICE_SEED_FILE=file), clock) as http:
            assert await log_in_statuses(http, secret) == expected
            async with serving(make_settings(), clock) as second:
                assert await log_in_statuses(second, secret) == expected


@pytest.mark.clause("decided-seed-strange-key")
async def test_console_with_a_foreign_key_refuses_a_seed(
    admin: Admin, environment: dict[str, str], store: redis.Redis
) -> None:
    await admin("user", "disable", BOB.username, "--yes")
    before = store.hgetall("seed:{registry}")
    environment["TOKEN_SERVICE_SECRET_KEY"] = "another secret key of 32 bytes or more"

    refused = await admin("seed", str(SEED))

    assert (refused.status, refused.output) == (1, "")
    assert "none of the configured secret keys belongs to this Redis" in refused.aside
    assert store.hgetall("seed:{registry}") == before


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_service_ends_revocations_of_a_killed_console(
    http: httpx2.AsyncClient,
    worker: Worker,
    store: redis.Redis,
    make_settings: MakeSettings,
    clock: Clock,
    held_time: LoopTime,
    is_restarted: bool,
) -> None:
    """The console is killed between the record and the sessions of `user delete`.

    A running and a starting service end them.
    """
    alices, bobs = [(await PHONE_APP.log_in(http, person)).json() for person in (ALICE, BOB)]
    identity = identify_user(ALICE.realm, ALICE.username)
    await worker.registry.add_pending_users([UserEnding.of(identity, "user_deleted")])
    await worker.registry.users.delete(identity)

    if is_restarted:
        async with serving(make_settings(), clock):
            pass
    else:
        held_time.advance(PENDING_REVOCATIONS_SECONDS)
        await until(lambda: not store.exists(registry_key("pending_revocations")), "the pending revocations")

    assert not await worker.registry.has_pending()
    assert not await is_live(http, alices["access_token"])
    assert await is_live(http, bobs["access_token"])
