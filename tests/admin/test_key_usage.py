"""`doctor` counts what depends on an earlier secret key while the key is being changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from service.store.registry import SIGNING_NOTE_SECONDS
from service.worker import Worker
from tests.admin.conftest import Admin
from tests.conftest import SECRET_KEY, SEED, Clock, MakeSettings, serving_worker
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, tokens_of
from tests.support.waiting import until_true

NEW_KEY = "another secret key of 32 bytes or more"
OLD_FIRST, NEW_FIRST = f"{SECRET_KEY},{NEW_KEY}", f"{NEW_KEY},{SECRET_KEY}"


@asynccontextmanager
async def serving_with(keys: str, make_settings: MakeSettings, clock: Clock) -> AsyncIterator[httpx2.AsyncClient]:
    """Run an instance with these keys and the seed file, and wait until it has recorded which key signs."""
    settings = make_settings(TOKEN_SERVICE_SECRET_KEY=keys, TOKEN_SERVICE_SEED_FILE=str(SEED))
    worker = Worker(settings, lambda: clock.offset_ms)
    async with serving_worker(worker) as http:
        await until_true(lambda: _is_noted(worker), "the record of the signing key")
        yield http


async def _is_noted(worker: Worker) -> bool:
    return worker.keyring.key_id in await worker.registry.list_signing_keys()


async def test_doctor_says_when_the_old_key_can_be_removed(
    admin: Admin, environment: dict[str, str], make_settings: MakeSettings, clock: Clock
) -> None:
    async def read_finding(keys: str) -> tuple[str, str]:
        environment["TOKEN_SERVICE_SECRET_KEY"] = keys
        report = (await admin("doctor", "--json")).json
        (found,) = [each for each in report if each["subject"] == "TOKEN_SERVICE_SECRET_KEY, key 2 of 2"]
        return found["level"], found["says"]

    async with serving_with(OLD_FIRST, make_settings, clock) as http:
        alice, bob = [tokens_of(await PHONE_APP.log_in(http, user)) for user in (ALICE, BOB)]
        assert (await read_finding(OLD_FIRST))[1].startswith("it is not known when it signed last: it is new")

    clock.advance(3 * SIGNING_NOTE_SECONDS)
    async with serving_with(NEW_FIRST, make_settings, clock) as http:
        level, says = await read_finding(NEW_FIRST)
        assert (level, says) == ("note", "in use by up to 2 sessions, and for the digests of 0 seed entries: keep it")
        await PHONE_APP.refresh(http, bob["refresh_token"])
        assert "up to 1 sessions" in (await read_finding(NEW_FIRST))[1]
        await PHONE_APP.refresh(http, alice["refresh_token"])
        assert await read_finding(NEW_FIRST) == ("good", "not in use any more: it can be removed")


async def test_digests_of_an_old_key_keep_it_in_use(
    admin: Admin, environment: dict[str, str], make_settings: MakeSettings, clock: Clock, worker: Worker
) -> None:
    """The seed file was not applied under the new key, so edits of it could not be recognised without the old one."""
    await worker.registry.note_signing_key(worker.keyring.key_id)
    environment["TOKEN_SERVICE_SECRET_KEY"] = NEW_FIRST

    report = (await admin("doctor", "--json")).json
    (says,) = [each["says"] for each in report if each["subject"] == "TOKEN_SERVICE_SECRET_KEY, key 2 of 2"]

    assert says.startswith("in use by up to 0 sessions, and for the digests of ")
    assert says.endswith(" seed entries: keep it")


async def test_what_an_earlier_change_recorded_does_not_count_for_the_next(
    admin: Admin, environment: dict[str, str], make_settings: MakeSettings, clock: Clock
) -> None:
    """Between two changes of the key, a key signs for long without a record. Its last record is far too early."""
    async with serving_with(OLD_FIRST, make_settings, clock):
        pass
    clock.advance(3 * SIGNING_NOTE_SECONDS)
    worker = Worker(make_settings(), lambda: clock.offset_ms)
    async with serving_worker(worker) as http:
        await until_true(lambda: _is_forgotten(worker), "the records to be deleted")
        await PHONE_APP.log_in(http, ALICE)
    clock.advance(3 * SIGNING_NOTE_SECONDS)
    async with serving_with(NEW_FIRST, make_settings, clock):
        environment["TOKEN_SERVICE_SECRET_KEY"] = NEW_FIRST
        report = (await admin("doctor", "--json")).json

    (found,) = [each for each in report if each["subject"] == "TOKEN_SERVICE_SECRET_KEY, key 2 of 2"]
    assert found["level"] == "note"
    assert found["says"].startswith("it is not known when it signed last")


async def _is_forgotten(worker: Worker) -> bool:
    return not await worker.registry.list_signing_keys()


async def test_with_one_key_nothing_is_recorded_and_nothing_reported(
    admin: Admin, http: httpx2.AsyncClient, worker: Worker
) -> None:
    assert not [
        each
        for each in (await admin("doctor", "--json")).json
        if each["subject"].startswith("TOKEN_SERVICE_SECRET_KEY, key")
    ]
    assert await worker.registry.list_signing_keys() == {}
