"""Rotation of a client's secret over HTTP: the old secret fails at once, or works for the chosen overlap."""

import httpx2
import msgspec
import pytest

from service.crypto.keyring import hash_generated_secret
from service.crypto.password_hashing import hash_password
from service.protocol.client import Client
from service.worker import Worker
from tests.conftest import Clock
from tests.support.clients_and_users import REVOKE, OAuthClient, assert_error, basic
from tests.support.invalidations import await_invalidations
from tests.support.waiting import until_status

DAY_SECONDS = 86_400
OLD, NEW, WRONG = (OAuthClient("rotating", letter * 43) for letter in "onw")
HASHES = {"made": hash_generated_secret, "chosen": hash_password}
EACH_KIND = pytest.mark.parametrize(("old", "new"), [("made", "chosen"), ("chosen", "made")])


async def put(worker: Worker, client: Client) -> None:
    await worker.registry.clients.put(client)
    await await_invalidations(worker)


async def rotate(worker: Worker, old: str, new: str, overlap_seconds: float) -> None:
    """Rotate a secret that was used before, so that a cache of checked secrets already holds it."""
    until_ms = await worker.redis.read_clock_ms() + round(overlap_seconds * 1000)
    rotated = Client(
        client_id=NEW.client_id,
        client_secret_hash=HASHES[new](NEW.client_secret or ""),
        previous_secret_hash=HASHES[old](OLD.client_secret or ""),
        previous_secret_until_ms=until_ms,
    )
    await put(worker, rotated)


async def is_right(http: httpx2.AsyncClient, client: OAuthClient) -> bool:
    """Return True if the secret authenticates both in the body and in the header."""
    in_body = await client.revoke(http, "x")
    in_header = await http.post(
        REVOKE, data={"token": "x"}, headers=basic(client.client_id, client.client_secret or "")
    )
    assert in_body.status_code == in_header.status_code
    if in_body.status_code != 200:
        assert_error(in_body, 401, "invalid_client")
    return in_body.status_code == 200


@EACH_KIND
@pytest.mark.clause("decided-secret-overlap", "6819-5.2.3.6-secret-revoked", "decided-i9-one-clock")
async def test_old_secret_is_valid_during_the_overlap_only(
    http: httpx2.AsyncClient, worker: Worker, clock: Clock, old: str, new: str
) -> None:
    await rotate(worker, old, new, DAY_SECONDS)
    for _ in range(2):
        assert [await is_right(http, app) for app in (OLD, NEW, WRONG)] == [True, True, False]

    clock.advance(DAY_SECONDS - 60)
    assert [await is_right(http, app) for app in (OLD, NEW, WRONG)] == [True, True, False]

    # A second more, because the tests let time pass slowly between two readings of Redis's clock.
    clock.advance(61)
    for _ in range(2):
        assert [await is_right(http, app) for app in (OLD, NEW, WRONG)] == [False, True, False]


@EACH_KIND
@pytest.mark.clause("decided-secret-overlap", "decided-registry-change-seen", "6819-5.2.3.6-secret-revoked")
async def test_without_an_overlap_the_old_secret_is_wrong_at_once(
    http: httpx2.AsyncClient, worker: Worker, old: str, new: str
) -> None:
    before = Client(client_id=OLD.client_id, client_secret_hash=HASHES[old](OLD.client_secret or ""))
    await put(worker, before)
    for _ in range(2):
        assert [await is_right(http, app) for app in (OLD, NEW)] == [True, False]

    await put(worker, msgspec.structs.replace(before, client_secret_hash=HASHES[new](NEW.client_secret or "")))
    await until_status(lambda: OLD.revoke(http, "x"), 401)

    assert [await is_right(http, app) for app in (OLD, NEW)] == [False, True]


@pytest.mark.clause("decided-secret-overlap", "6819-5.2.3.6-secret-revoked")
async def test_an_overlap_can_be_cut_short(http: httpx2.AsyncClient, worker: Worker) -> None:
    await rotate(worker, "made", "made", DAY_SECONDS)
    assert await is_right(http, OLD)

    await rotate(worker, "made", "made", 0)
    await until_status(lambda: OLD.revoke(http, "x"), 401)

    assert [await is_right(http, app) for app in (OLD, NEW)] == [False, True]
