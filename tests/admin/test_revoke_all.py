"""`revoke-all --user · --client · --issued-before · --everything`."""

import asyncio
import os

import httpx2
import pytest
import redis

from service.admin.context import AdminContext
from service.config.settings import load_settings
from service.protocol.user import identify_user
from service.store.keys import family_key, mark_key
from service.worker import Worker
from tests.admin.conftest import Admin, Answer, is_live, type_in
from tests.conftest import Clock
from tests.support.browser import SESSIONS, Browser, is_login_page
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, WEB_SHOP, tokens_of


@pytest.mark.parametrize(
    ("words", "ended"),
    [
        (("--user", ALICE.username), {"alice's phone", "alice's shop"}),
        (("--client", "phone-app"), {"alice's phone", "bob's phone"}),
        (("--everything",), {"alice's phone", "alice's shop", "bob's phone"}),
    ],
)
async def test_only_named_sessions_end(
    admin: Admin, http: httpx2.AsyncClient, words: tuple[str, ...], ended: set[str]
) -> None:
    tokens = {
        "alice's phone": (await PHONE_APP.log_in(http, ALICE)).json(),
        "alice's shop": (await WEB_SHOP.log_in(http, ALICE)).json(),
        "bob's phone": (await PHONE_APP.log_in(http, BOB)).json(),
    }

    done = await admin("revoke-all", *words, "--yes", "--json")

    assert done.status == 0
    event = (await admin("events", "--json")).lines[-1]
    assert (event["event"], event["reason"]) == ("revoke_all_by_cli", words[0].removeprefix("--"))
    assert {whose for whose, each in tokens.items() if not await is_live(http, each["access_token"])} == ended
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--user", ALICE.username), "are revoked: 1. So are their access tokens, and all codes and browser sessions."),
        (
            ("--client", "phone-app"),
            "phone-app are revoked: 1. So are their access tokens and codes. Browser sessions continue.",
        ),
        (
            ("--everything",),
            "of all users are revoked. So are their access tokens, and all codes and browser sessions.",
        ),
    ],
)
async def test_revoke_all_says_what_else_has_ended(
    admin: Admin, http: httpx2.AsyncClient, words: tuple[str, ...], told: str
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    browser = Browser(http)
    await browser.sign_in()

    assert told in (await admin("revoke-all", *words, "--yes")).output
    assert not await is_live(http, tokens["access_token"])
    assert is_login_page(await browser.open(SESSIONS)) is ("Browser sessions continue" not in told)


@pytest.mark.clause("decided-revoke-all-unreadable-record")
async def test_unreadable_session_of_a_user_keeps_no_other(
    admin: Admin, http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    await PHONE_APP.log_in(http, ALICE)
    store.set(str(next(store.scan_iter("family:*"))), "3\nfrom another version")
    other = tokens_of(await PHONE_APP.log_in(http, ALICE))

    assert (await admin("revoke-all", "--user", ALICE.username, "--yes")).status == 1
    assert not await is_live(http, other["access_token"])


@pytest.mark.clause("decided-login-under-way-at-revocation")
async def test_everything_marks_users_without_sessions(admin: Admin, worker: Worker, store: redis.Redis) -> None:
    """A login of the user that is under way then starts nothing."""
    identity = identify_user(ALICE.realm, ALICE.username)
    done = await admin("revoke-all", "--everything", "--yes", "--json")

    assert done.status == 0
    assert store.exists(mark_key(identity.shard, identity.digest))


async def test_everything_and_a_change_of_a_user_do_not_wait(admin: Admin, worker: Worker) -> None:
    async with worker.registry.make_lock():
        ended = await admin("revoke-all", "--everything", "--yes")
    async with worker.registry.make_lock_for("everybody", list):
        changed = await admin("user", "disable", ALICE.username, "--yes")

    assert [(each.status, "Waiting" in each.aside) for each in (ended, changed)] == [(0, False)] * 2


@pytest.mark.parametrize("options", [(), ("--json",)])
async def test_failed_command_tells_how_many_have_ended(
    admin: Admin, http: httpx2.AsyncClient, store: redis.Redis, options: tuple[str, ...]
) -> None:
    """A record of an unknown version is an outage. Once it is gone, the same command ends the other sessions."""
    alices, bobs = [tokens_of(await PHONE_APP.log_in(http, user)) for user in (ALICE, BOB)]
    key = str(next(store.scan_iter("family:*")))
    record = store.dump(key)
    store.set(key, "3\nfrom another version")
    words = ("revoke-all", "--everything", "--yes", *options)
    failed = await admin(*words)

    assert failed.status == 1
    assert "users are revoked. Repeat the command to revoke the rest." in failed.aside
    assert record is not None
    store.restore(key, 0, record, replace=True)
    assert (await admin(*words)).status == 0
    assert not [each for each in (alices, bobs) if await is_live(http, each["access_token"])]
    assert [event["reason"] for event in (await admin("events", "--json")).lines[-2:]] == ["everything"] * 2


async def test_interrupted_sweep_continues_at_the_shard_it_names(
    environment: dict[str, str], http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    """With many keys the users are listed in 16 groups. An unreadable record keeps no later group."""
    tokens = {user.username: tokens_of(await PHONE_APP.log_in(http, user)) for user in (ALICE, BOB)}
    shards = {each.username: identify_user(each.realm, each.username).shard for each in (ALICE, BOB)}
    first = min(shards, key=lambda name: shards[name])
    (key,) = store.scan_iter(f"family:{{{shards[first]}}}:*")
    record = store.dump(key)
    store.set(key, "3\nfrom another version")

    def make_context() -> AdminContext:
        context = AdminContext(load_settings(os.environ))
        context.session_scan.listed_keys = 1
        return context

    async def revoke(*options: str) -> Answer:
        words = ("revoke-all", "--everything", "--yes", *options)
        return await asyncio.to_thread(type_in, *words, environment=environment, make_context=make_context)

    failed = await revoke()
    assert failed.status == 1
    assert f"Repeat the command with --from-shard {shards[first]} to revoke the rest." in failed.aside
    assert [name for name in tokens if await is_live(http, tokens[name]["access_token"])] == [first]

    assert record is not None
    store.restore(key, 0, record, replace=True)
    assert (await revoke("--from-shard", "fff")).status == 0
    assert await is_live(http, tokens[first]["access_token"])
    assert (await revoke("--from-shard", shards[first])).status == 0
    assert not await is_live(http, tokens[first]["access_token"])


def begin_at_whole_second(worker: Worker, store: redis.Redis, refresh_token: str) -> None:
    """Move the beginning of a session to the second that commands print."""
    token = worker.keyring.parse_refresh_token(refresh_token)
    assert token is not None
    key = family_key(token.shard, token.family_digest)
    version, created_ms, *others = str(store.get(key)).split("\n")
    store.set(key, "\n".join([version, f"{created_ms[:-3]}000", *others]), keepttl=True)


async def test_revocation_by_time_keeps_later_sessions(
    admin: Admin, http: httpx2.AsyncClient, clock: Clock, worker: Worker, store: redis.Redis
) -> None:
    """A session that began at the very time is a later one."""
    old = (await PHONE_APP.log_in(http, ALICE)).json()
    clock.advance(60)
    new = (await PHONE_APP.log_in(http, ALICE)).json()
    begin_at_whole_second(worker, store, new["refresh_token"])
    since = (await admin("token", "inspect", new["access_token"], "--json")).json["session_started"]

    done = await admin("revoke-all", "--issued-before", since, "--yes")

    assert done.status == 0
    assert not await is_live(http, old["access_token"])
    assert await is_live(http, new["access_token"])
    assert (await PHONE_APP.refresh(http, old["refresh_token"])).status_code == 400
    assert (await PHONE_APP.refresh(http, new["refresh_token"])).status_code == 200
