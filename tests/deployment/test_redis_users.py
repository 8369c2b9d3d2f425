"""The Redis users of the service and its console have every right that they use, and no other.

All test servers have these users. Every test of the console uses its user. The service uses its own here, on a cluster
and behind Sentinel.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import redis

from service.app import build_app
from service.config.settings import load_settings
from service.protocol.user import identify_user
from service.redis_client.script import OWN_SCRIPTS
from service.redis_client.url import parse_redis_url
from service.registry.seed_file.read import parse_seed
from service.store import keys
from service.store.client import StoreClient
from service.store.events import EventStream
from service.store.reports.session_count import COUNTED_KEYS, estimate_session_count
from service.store.single_use import make_state_key, make_token_key
from service.worker import Worker
from tests.admin.conftest import Answer, type_in
from tests.conftest import SEED, Clock, environment_of, http_client_for, make_code, running_lifespan
from tests.house.key_table import read_table
from tests.invariants.operations import Operations
from tests.store.filling import fill
from tests.support.browser import Browser, authorization_url
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, UserCredentials, tokens_of
from tests.support.redis_users import WITHOUT_RIGHTS, find_allowed, find_refusals, read_rights
from tests.support.servers import RedisServer, knows_users, server_binary

UNSEEN = {
    "asking": "of a key whose slot moves, on a cluster",
    "cluster|slots": "on a cluster",
    "cluster|info": "on a cluster",
    "cluster|nodes": "on a cluster, by sweeps",
    "wait": "where TOKEN_SERVICE_DURABILITY is `replica`",
    "zunionstore": "by the service, where a provider ends one login",
}
"""Granted commands that a single server with default settings does not need, or not for few sessions."""

DECLARED = {"guard"}
"""Kinds of keys that scripts declare and never write, so that the table of keys lacks them."""

REALM = """
realms:
  cep: {{client_id: us, client_secret: secret, issuer: "https://one.example.org", default_roles: [{roles}]}}
"""
SHORT_SEED = """
clients: [{client_id: phone-app, redirect_uris: ["http://127.0.0.1:9000/callback"], scope: realm:main role:enduser}]
users: [{username: alice@example.com, password: correct horse battery staple, roles: [enduser]}]
"""
SCOPES = ("--scope", "realm:main role:enduser", "--default-scope", "realm:main role:enduser")

pytestmark = [
    pytest.mark.clause("decided-redis-users"),
    pytest.mark.single_server,
    pytest.mark.skipif(not knows_users(server_binary()), reason="Redis 6.2 cannot load the files of all users"),
]


class UsedRights:
    """The commands, in lower case, and the kinds of keys that they named. Filled at the end of the watch."""

    def __init__(self) -> None:
        self.commands: set[str] = set()
        self.kinds: set[str] = set()

    def note(self, words: list[str], granted: frozenset[str]) -> None:
        name = words[0].lower()
        subcommand = f"{name}|{words[1].lower()}" if len(words) > 1 else ""
        self.commands.add(subcommand if subcommand in granted or name == "client" else name)
        if name not in ("pttl", "memory"):  # the console may use them on every key
            self.kinds |= {get_kind(word) for word in words[1:] if re.match(r"[a-z_:]+:\{", word)}


def get_kind(key: str) -> str:
    return "seed" if key.startswith("seed:{") else keys.get_kind(key)


@contextmanager
def recording_rights(store: redis.Redis, user: str) -> Iterator[UsedRights]:
    """Record the commands of connections with this user and of their scripts."""
    used, granted = UsedRights(), read_rights(user).commands
    store.acl_log_reset()
    store.script_flush()
    with store.monitor() as monitor:  # type: ignore[no-untyped-call]
        yield used
        others = {client["addr"] for client in store.client_list() if client["user"] != user}
        store.echo("the end of the watch")
        asking = ""
        while "the end of the watch" not in (said := monitor.next_command())["command"]:
            if said["client_type"] != "lua":  # commands of a script follow its call
                asking = f"{said['client_address']}:{said['client_port']}"
            if asking not in others:
                used.note(said["command"].split(" "), granted)


async def test_the_service_uses_all_that_it_was_granted(
    redis_server: RedisServer, store: redis.Redis, clock: Clock
) -> None:
    settings = load_settings(
        environment_of(redis_server, REDIS_URL=redis_server.url_of("service"), TOKEN_SERVICE_VERIFY_CACHE="on")
    )
    with recording_rights(store, "service") as used:
        worker = Worker(settings, lambda: clock.offset_ms)
        worker.pending_revocations.scan_delay_seconds = 0
        app = build_app(worker)
        async with running_lifespan(app), http_client_for(app) as http:
            async for _ in Operations(http, worker, clock).run_all():
                pass
            await make_code(worker)
            await PHONE_APP.log_in(http, ALICE)
            await change_seed(worker)
            assert await worker.single_use.take(make_state_key("state"), 60_000)
            await worker.single_use.note(make_token_key(identify_user("cep", "zoe"), "a token"))
            await estimate_session_count(worker.redis)
            await revoke_nothing(worker.redis, store)
            fill(store, sessions=COUNTED_KEYS, access_tokens=0)
            await estimate_session_count(worker.redis)

    assert not find_refusals(store, {"service"})
    assert_all_is_used(used, "service")
    assert used.kinds == {row.kind for row in read_table()} | DECLARED


async def change_seed(worker: Worker) -> None:
    """Apply a seed in which a realm is added and loses a role, and a user and a client lose one."""
    text = SEED.read_text()
    for changed in (
        REALM.format(roles="enduser") + text,
        REALM.format(roles="") + text.replace("roles: [enduser, organisation]", "roles: [enduser]"),
        text.replace("role:organisation role:device", "role:device"),
    ):
        await worker.seeding.apply(parse_seed(changed.encode()))


async def test_the_console_uses_all_that_it_was_granted(
    redis_server: RedisServer, store: redis.Redis, worker: Worker, http: httpx2.AsyncClient, tmp_path: Path
) -> None:
    environment = environment_of(redis_server, REDIS_URL=redis_server.url_of("console"))
    browser = Browser(http)
    answers: list[Answer] = []

    async def admin(*words: str, typed: str | None = None) -> Answer:
        answers.append(await asyncio.to_thread(type_in, *words, typed=typed, environment=environment))
        return answers[-1]

    async def use_every_feature() -> dict[str, str]:
        """Use every feature of a user once, with a session that a retry has merged and one that was revoked."""
        for person in (ALICE, BOB):
            await PHONE_APP.log_in(http, person)
            await browser.open_consent_page(authorization_url())
            await make_code(worker, person)
        tokens = dict(tokens_of(await PHONE_APP.log_in(http, ALICE)))
        await PHONE_APP.refresh(http, tokens["refresh_token"])
        return tokens

    seed = tmp_path / "seed.yaml"
    with recording_rights(store, "console") as used:
        for text in (REALM.format(roles="enduser") + SEED.read_text(), REALM.format(roles="") + SHORT_SEED):
            seed.write_text(text)
            await admin("seed", str(seed), "--prune", "--yes")
            await admin("seed", str(seed), "--dry-run", "--prune", "--force")
        seed.write_text(SEED.read_text())
        await admin("seed", str(seed), "--force", "--prune", "--yes")

        tokens = await use_every_feature()
        for token in (tokens["access_token"], tokens["refresh_token"]):
            await admin("token", "inspect", typed=token)
        await admin("token", "revoke", typed=tokens["access_token"])
        await admin("token", "revoke", typed=tokens["refresh_token"])
        await admin("token", "inspect", typed=tokens["refresh_token"])

        await admin("client", "create", "new", "--redirect-uri", "https://new.example/", *SCOPES)
        await admin("client", "rotate-secret", "new", "--overlap", "1h")
        await admin("client", "list")
        await admin("client", "show", "new")
        await admin("client", "update", "new", "--add-scope", "role:partner")
        await admin("client", "disable", "new", "--yes")
        await admin("client", "enable", "new")
        await admin("client", "delete", "new", "--yes")
        await admin("client", "delete", "web-shop", "--yes")
        await admin("user", "create", "new@example.com", "--role", "enduser", typed="a password of theirs")
        await admin("user", "set-password", ALICE.username, "--yes", typed=ALICE.password)
        await admin("user", "disable", BOB.username, "--yes")
        await admin("user", "enable", BOB.username)
        await admin("user", "update", BOB.username, "--add-role", "partner")
        await PHONE_APP.log_in(http, UserCredentials(BOB.username, "a wrong password"))
        await admin("user", "unlock", BOB.username)
        await admin("session", "list", "--user", ALICE.username)
        await admin("realm", "list")
        environment["TOKEN_SERVICE_SECRET_KEY"] += ", a second secret key of 32 bytes or more"
        await admin("doctor")
        await use_every_feature()
        for words in (("user", "list"), ("user", "show", BOB.username), ("events",), ("stats",), ("doctor",)):
            await admin(*words)
        await admin("revoke-all", "--user", BOB.username, "--yes")
        await use_every_feature()
        await admin("revoke-all", "--client", "phone-app", "--yes")
        await admin("revoke-all", "--issued-before", "2026-01-01T00:00:00Z", "--yes")
        await admin("revoke-all", "--everything", "--yes")
        await use_every_feature()
        await admin("user", "delete", ALICE.username, "--yes")
        connection = StoreClient(parse_redis_url(environment["REDIS_URL"]))
        assert await EventStream(connection).read()  # as `events --follow` does
        await revoke_nothing(connection, store)
        await connection.close()

    assert [answer.aside for answer in answers if answer.status] == []
    assert not find_refusals(store, {"console"})
    assert_all_is_used(used, "console")


async def revoke_nothing(connection: StoreClient, store: redis.Redis) -> None:
    """Run revocations without a target with a TOKEN_SERVICE_DURABILITY other than `memory`.

    The script cache is emptied in between.
    """
    for _ in range(2):
        assert await connection.run(OWN_SCRIPTS["leave_fence"], fence_key=keys.fence_key("0a3"), lifetime_ms=1000) == [
            "left"
        ]
        store.script_flush()


def assert_all_is_used(used: UsedRights, user: str) -> None:
    """Check that all granted commands and kinds of keys were used."""
    rights = read_rights(user)
    kinds = {get_kind(pattern.partition("~")[2]) for pattern in rights.keys} - {"*"}
    assert used.commands - WITHOUT_RIGHTS - rights.commands == set()
    assert rights.commands - used.commands - UNSEEN.keys() == set()
    assert used.kinds == kinds


def test_the_services_keys_are_those_of_the_table() -> None:
    assert read_rights("service").keys == {f"~{kind}:*" for kind in {row.kind for row in read_table()} | DECLARED}


@pytest.mark.parametrize("user", ["service", "console"])
def test_redis_users_may_run_only_listed_commands(store: redis.Redis, user: str) -> None:
    """This covers commands that empty, stop, change, copy or monitor the server, and those of later versions."""
    granted = read_rights(user).commands
    found = find_allowed(store, user, keys.user_key(identify_user("main", ALICE.username)))
    allowed = found

    assert allowed - WITHOUT_RIGHTS <= granted | {name.partition("|")[0] for name in granted}
    assert granted <= allowed | {name for name in granted if "|" in name and name.partition("|")[0] in allowed}
    assert not allowed & {"flushall", "flushdb", "keys", "config|set", "config|get", "debug", "shutdown", "monitor"}
    assert not allowed & {"acl|setuser", "swapdb", "replicaof", "migrate", "dump", "restore", "function|load", "select"}


FOREIGN = ("session:1", "myaccess:{0a3}:x")


@pytest.mark.parametrize("user", ["service", "console"])
def test_redis_users_reach_only_their_own_keys(redis_server: RedisServer, store: redis.Redis, user: str) -> None:
    with redis.Redis.from_url(redis_server.url_of(user)) as client:
        for key in FOREIGN:
            store.set(key, "another program's")
            for command in (("GET", key), ("SET", key, "x"), ("DEL", key), ("EVAL", "return 1", "1", key)):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    client.execute_command(*command)
            with pytest.raises(redis.exceptions.ResponseError, match=r"\bkey"):
                client.eval(f"return redis.call('GET', '{key}')", 0)
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.publish("channel", "x")

    store.acl_log_reset()
