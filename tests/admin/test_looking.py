"""`events · stats · doctor · hash-secret`, and errors of the console without configuration or Redis."""

import asyncio
import json
import os
import pwd
import shlex
import signal
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import httpx2
import pytest
import redis

from service.admin.command import console
from service.admin.commands.doctor import estimate_memory, look_at_servers
from service.admin.commands.stats import make_plan
from service.app import build_app
from service.crypto.password_hashing import verify_password
from service.protocol.client import Client
from service.protocol.user import User, identify_user
from service.store.keys import id_key, index_key
from service.system.process import count_usable_cores, find_memory_limit
from service.worker import Worker
from tests.admin.conftest import Admin, type_in
from tests.conftest import SECRET_KEY, AnyRedis, Clock, MakeSettings, http_client_for, running_lifespan
from tests.support.certificates import Authority
from tests.support.clients_and_users import ALICE, BOB, GATEWAY, PHONE_APP, UserCredentials
from tests.support.servers import CHECKOUT, RedisServer
from tests.support.waiting import MAX_WAIT_SECONDS
from tests.support.weak_hashes import BCRYPT_HASH, WEAKER_HASH

LARGE_HASH = WEAKER_HASH.replace("m=8192", "m=65536")


class TestEvents:
    async def test_console_changes_are_logged_with_the_operator(
        self, admin: Admin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LOGNAME", "somebody-else")
        await admin("user", "disable", BOB.username, "--yes")
        await admin("client", "rotate-secret", "web-shop", "--yes")

        report = (await admin("events", "--json")).lines

        sitting_here = pwd.getpwuid(os.getuid()).pw_name
        assert [(event["event"], event["actor"]) for event in report] == [
            ("user_disabled", sitting_here),
            ("client_secret_rotated", sitting_here),
        ]
        assert (report[0]["username"], report[0]["realm"], report[1]["client_id"]) == (BOB.username, "main", "web-shop")

    async def test_interrupted_change_is_still_logged(self, admin: Admin, store: redis.Redis) -> None:
        """Otherwise an admin could hide a change by pressing Ctrl-C in time."""
        identity = identify_user("main", BOB.username)
        store.set(index_key(identity.shard, identity.digest), "no index, so that nothing can be ended")

        assert (await admin("user", "disable", BOB.username, "--yes")).status == 1
        assert [event["event"] for event in (await admin("events", "--json")).lines] == ["user_disabled"]

    async def test_they_can_be_narrowed_to_a_user_and_to_a_client(self, admin: Admin) -> None:
        await admin("user", "disable", BOB.username, "--yes")
        await admin("user", "enable", BOB.username)
        await admin("client", "rotate-secret", "web-shop", "--yes")

        for words, count in (
            (("--user", "Bob@example.com"), 2),
            (("--client", "web-shop"), 1),
            (("--user", "x"), 0),
            (("--since", "24h"), 3),
            (("--since", "2099-01-01"), 0),
        ):
            assert len((await admin("events", *words, "--json")).lines) == count
        assert "No events found." in (await admin("events", "--user", "x")).aside

    @pytest.mark.clause("decided-events-of-users")
    async def test_unknown_usernames_do_not_displace_user_events(
        self, admin: Admin, make_settings: MakeSettings, clock: Clock
    ) -> None:
        app = build_app(Worker(make_settings(), lambda: clock.offset_ms))
        async with running_lifespan(app), http_client_for(app) as http:
            for number in range(12):
                await PHONE_APP.log_in(http, UserCredentials(f"nobody{number}@example.com", "wrong"))
            for _ in range(8):
                await PHONE_APP.log_in(http, UserCredentials(BOB.username, "wrong"))

        report = (await admin("events", "--user", BOB.username, "--json")).lines
        assert [event.get("repeats") for event in report] == [None] * 5 + [3]
        everything = (await admin("events", "--json")).lines
        assert [event["timestamp"] for event in everything] == sorted(event["timestamp"] for event in everything)
        assert [event.get("username") for event in everything].count(None) == 6

    async def test_following_shows_each_event_of_any_stream_once(
        self, environment: dict[str, str], worker: Worker
    ) -> None:
        await worker.event_stream.append([b'{"event":"1"}'], [], [b'{"event":"2"}'] * 30)
        words = (sys.executable, "-X", "faulthandler", "-m", "service.admin", "events", "--follow", "--json")
        console = await asyncio.create_subprocess_exec(
            *words, env=os.environ | environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert console.stdout is not None
        try:
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                shown = [await console.stdout.readline() for _ in range(20)]
                for number in (3, 4, 5):
                    batch = [b'{"event":"%d"}' % number]
                    await worker.event_stream.append(*(batch if number - 3 == each else [] for each in range(3)))
                    shown.append(await console.stdout.readline())
        finally:
            console.send_signal(signal.SIGINT)
            ending = asyncio.create_task(console.communicate())
            if not (await asyncio.wait({ending}, timeout=MAX_WAIT_SECONDS))[0]:
                console.send_signal(signal.SIGABRT)  # faulthandler prints the stacks on stderr
            rest, report = await ending

        assert [json.loads(line)["event"] for line in shown] == ["2"] * 20 + ["3", "4", "5"]
        assert (rest, report, console.returncode) == (b"", b"", 0)

    async def test_a_name_with_control_characters_is_shown_and_not_obeyed(
        self, admin: Admin, worker: Worker, store: redis.Redis
    ) -> None:
        """A user name at a provider must not control an admin's terminal."""
        eve = User(realm="cep", username="eve\x9b31m\x1b[31m\u202e")
        store.set("realm:{registry}:cep", '{"client_id":"us"}')
        await worker.registry.users.put(eve)
        await admin("user", "disable", eve.username, "--realm", "cep", "--yes")

        for words in (
            ("user", "list", "--realm", "cep"),
            ("events",),
            ("user", "show", eve.username, "--realm", "cep"),
            ("user", "delete", eve.username, "--realm", "cep", "--yes"),
            ("user", "delete", eve.username, "--realm", "cep", "--yes"),
        ):
            shown = await admin(*words)
            assert "eve\\x9b31m\\x1b[31m\\u202e" in shown.output + shown.aside
            assert not {"\x9b", "\x1b", "\u202e"} & set(shown.output + shown.aside)
            as_json = await admin(*words, "--json")
            assert as_json.output.replace("\n", "").isprintable()


PLANNED = {
    "refreshes a second at peak": "refreshes_per_second",
    "logins a second at peak": "logins_per_second",
    "lookups of gateways, a second at peak": "lookups_per_second",
    "memory of the masters": "gigabytes_of_masters",
    "masters": "masters",
    "memory to install": "gigabytes_to_install",
    "cores of the service": "service_cores",
}
"""Rows of the table in docs/how-to/size-and-scale.md, and what `stats --plan` calls them."""


class TestStats:
    async def test_everything_is_counted(self, admin: Admin, http: httpx2.AsyncClient) -> None:
        tokens = (await PHONE_APP.log_in(http, ALICE)).json()
        await PHONE_APP.refresh(http, tokens["refresh_token"])
        await PHONE_APP.log_in(http, BOB)

        report = (await admin("stats", "--json")).json

        assert (report["sessions"], report["access_tokens"], report["users"], report["clients"]) == (2, 3, 3, 7)
        assert report["users_with_sessions"] == 2
        assert 300 < report["bytes_per_session"] < 2000
        assert "bytes per session" in (await admin("stats")).output

    async def test_plan_scales_the_load_of_the_store(self, admin: Admin, http: httpx2.AsyncClient) -> None:
        assert (await admin("stats", "--plan")).status == 1  # no sessions
        tokens = (await PHONE_APP.log_in(http, ALICE)).json()
        await PHONE_APP.refresh(http, tokens["refresh_token"])
        for _ in range(50):
            await GATEWAY.introspect(http, tokens["access_token"])

        now, grown = [
            (await admin("stats", "--json", "--plan", *count)).json["plan"] for count in ((), ("1000000000",))
        ]

        assert (now["masters"], now["cost_per_month"]) == (1, pytest.approx(0, abs=1))
        assert now["lookups_per_second"] > 0
        assert grown["gigabytes_of_masters"] == 610 + 3 * 800 + 2 * 534
        assert grown["refreshes_per_second"] == 1_000_000_000 * 2 / 600 * 3
        assert grown["access_tokens_per_master"] == pytest.approx(2_000_000_000 / grown["masters"], rel=0.01)

    @pytest.mark.parametrize(("millions", "column"), [(1, 3), (1000, 4)])
    def test_plan_agrees_with_the_table_of_the_document(self, millions: int, column: int) -> None:
        """The document assumes one user for each session, a tenth of them in use, and four lookups for a token."""
        sessions = 1e6 * millions
        refreshes = sessions / 10 / 600
        load = {"sessions": sessions, "users": sessions, "access_tokens": sessions / 10, "refreshes": refreshes}
        load |= {"logins": sessions / (30 * 86_400), "lookups": 4 * refreshes}

        plan = make_plan(load, peak=3, gigabyte_price=5, core_price=20)

        table = (
            (CHECKOUT / "docs" / "how-to" / "size-and-scale.md")
            .read_text()
            .partition("## The arithmetic")[2]
            .partition("\n## ")[0]
        )
        rows = {cells[1].strip(" *"): cells for cells in (line.split("|") for line in table.splitlines()) if cells[1:]}
        for told, name in PLANNED.items():
            number = float(rows[told][column].replace(",", "").replace("GB", "").strip(" *"))
            assert plan[name] == pytest.approx(number, rel=0.05), told


class TestDoctor:
    async def read_findings(self, admin: Admin) -> dict[tuple[str, str], str]:
        """Return the findings of the doctor by level and subject."""
        answer = await admin("doctor", "--json")
        found = {(each["level"], each["subject"]): each["message"] for each in answer.json}
        assert answer.status == any(level == "error" for level, _ in found)
        return found

    async def test_doctor_reports_a_healthy_store(self, admin: Admin, http: httpx2.AsyncClient) -> None:
        await PHONE_APP.log_in(http, ALICE)

        found = await self.read_findings(admin)

        assert not [subject for level, subject in found if level == "error"]
        assert found["ok", "keys"] == "every key that should expire has an expiry time"
        assert "appendonly is off" in found["warning", "Redis"]

    @pytest.mark.clause("decided-foreign-hashes")
    async def test_doctor_counts_password_hashes_by_kind(self, admin: Admin, worker: Worker) -> None:
        ours = (await self.read_findings(admin))["ok", "password hashes"]
        for number, text in enumerate((BCRYPT_HASH, BCRYPT_HASH, "cut off", None)):
            await worker.registry.users.put(User(realm="main", username=f"user{number}", password_hash=text))
        await worker.registry.users.put(User(realm="cep", username="user9"))

        assert ours.endswith(" argon2id")
        found = await self.read_findings(admin)
        assert found["note", "password hashes"] == f"{ours}, 2 bcrypt, 1 none, 1 unreadable"

    @pytest.mark.clause("decided-memory-of-hashes")
    @pytest.mark.parametrize("owner", ["user", "client"])
    async def test_doctor_warns_if_hashes_may_exceed_the_memory(
        self, admin: Admin, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: str
    ) -> None:
        group, groups = tmp_path / "sys/fs/cgroup/system.slice/ours", tmp_path / "proc/self/cgroup"
        for folder in (group, groups.parent):
            folder.mkdir(parents=True)
        groups.write_text("1:cpu:/other\n0::/system.slice/ours\n")
        monkeypatch.setattr(find_memory_limit, "__defaults__", (str(tmp_path),))
        enough = estimate_memory(1, count_usable_cores(), 64 * 1024)

        async def find_warning(limit: object) -> str | None:
            (group / "memory.max").write_text(f"{limit}\n")
            return (await self.read_findings(admin)).get(("warning", "memory"))

        assert await find_warning(enough - 1) is None
        if owner == "user":
            await worker.registry.users.put(User(realm="main", username="user1", password_hash=LARGE_HASH))
        else:
            await worker.registry.clients.put(Client(client_id="large", client_secret_hash=LARGE_HASH))
        assert "the largest hash needs 64.0 MiB" in (await find_warning(enough - 1) or "")
        assert [await find_warning(enough), await find_warning("max")] == [None, None]

    async def test_doctor_names_stray_ids_and_writes_missing_ones(
        self, admin: Admin, worker: Worker, store: redis.Redis
    ) -> None:
        """A rename that is under way is neither. An id that is another user's stays theirs."""
        alice, bob = identify_user("main", ALICE.username), identify_user("main", BOB.username)
        former = User(realm="main", username="former", id="renamed", renamed_to="latter")
        latter = User(realm="main", username="latter", id="renamed")
        for user in (former, latter, User(realm="main", username="twin", id=bob.digest)):
            await worker.registry.users.put(user)
        await worker.registry.ids.put("renamed", former.identity, latter.identity)
        assert ("note", "ids") not in await self.read_findings(admin)

        await worker.registry.ids.put("gone", identify_user("main", "nobody"))
        await worker.registry.ids.put("former id", bob)
        store.delete(id_key(alice.digest))
        found, again = await self.read_findings(admin), await self.read_findings(admin)

        assert found["note", "ids"].startswith(
            "2 belong to no user, because a change was interrupted. New users may take them: id:{"
        )
        assert all(id_key(user_id) in found["note", "ids"] for user_id in ("gone", "former id"))
        assert found["warning", "ids"].startswith("1 were missing, because Redis lost a write")
        assert store.get(id_key(alice.digest)) == alice.digest
        assert store.get(id_key(bob.digest)) == bob.digest
        assert ("warning", "ids") not in again

    async def test_doctor_counts_problems_without_an_error(self, admin: Admin, store: redis.Redis) -> None:
        store.config_set("maxmemory-policy", "allkeys-lru")
        try:
            answers = await admin("doctor"), await admin("doctor", "--json")
        finally:
            store.config_set("maxmemory-policy", "noeviction")

        assert [answer.status for answer in answers] == [1, 1]
        assert "maxmemory-policy is allkeys-lru" in answers[0].output
        assert answers[0].aside == f"{answers[0].output.count('✗')} to fix (marked ✗ above).\n"
        assert answers[1].aside == ""

    @pytest.mark.single_server("the memory of one server is limited")
    async def test_a_full_redis_is_trouble(self, admin: Admin, store: redis.Redis) -> None:
        store.config_set("maxmemory", store.info("memory")["used_memory"] // 2)
        try:
            found = (await admin("doctor", "--json")).json
        finally:
            store.config_set("maxmemory", 0)

        told = [each["message"] for each in found if (each["level"], each["subject"]) == ("error", "Redis")]
        assert any("OOM" in says for says in told)
        assert any("memory is in use" in says for says in told)

    @pytest.mark.parametrize(
        ("info", "level", "says"),
        [
            ({"maxmemory_policy": "allkeys-lru"}, "error", "expected noeviction"),
            ({"maxmemory": 0}, "warning", "maxmemory is not set"),
            ({"aof_enabled": 0}, "warning", "appendonly is off"),
            ({"aof_last_write_status": "err"}, "error", "check its disk"),
            ({"tracking_total_keys": 900_000}, "note", "tracking-table-max-keys"),
            ({"used_memory": 800}, "warning", "800 B of 1000 B memory"),
            ({"used_memory": 1000}, "error", "1000 B of 1000 B memory"),
            ({"connected_slaves": 0}, "warning", "no replica"),
        ],
    )
    async def test_a_server_that_may_lose_data_is_reported(
        self, info: dict[str, object], level: str, says: str
    ) -> None:
        sound = {"maxmemory_policy": "noeviction", "maxmemory": 1000, "aof_enabled": 1, "connected_slaves": 1}

        (finding,) = look_at_servers([sound | info], needs_replicas=True)

        assert (finding.level, says in finding.message) == (level, True)

    async def test_live_tokens_beyond_the_tracking_table_are_told(self) -> None:
        sound = {"maxmemory_policy": "noeviction", "maxmemory": 1000, "aof_enabled": 1}

        (finding,) = look_at_servers([sound], tokens=2_500_000)

        assert (finding.level, finding.message[:38]) == ("note", "2500000 tracked keys or valid access t")

    async def test_a_disk_that_does_not_confirm_is_trouble(
        self, admin: Admin, environment: dict[str, str], redis_server: AnyRedis
    ) -> None:
        environment |= {"REDIS_URL": redis_server.url, "TOKEN_SERVICE_DURABILITY": "disk"}

        found = await self.read_findings(admin)

        assert "appendfsync always" in found["error", "TOKEN_SERVICE_DURABILITY=disk"]

    async def test_doctor_reports_keys_that_never_expire(self, admin: Admin, store: redis.Redis) -> None:
        store.set("family:{000}:stray", "x")

        found = await self.read_findings(admin)

        assert found["error", "keys"].endswith("of family without an expiry time: family:{000}:stray")
        assert ("warning", "keys") not in found

    async def test_doctor_tells_keys_of_other_programs_apart(self, admin: Admin, store: redis.Redis) -> None:
        store.set("user:7", "x")
        store.set("cart:{7}", "x", ex=3600)

        found = await self.read_findings(admin)

        assert {"user:7", "cart:{7}"} == set(found["warning", "keys"].partition(": ")[2].split(", "))
        assert ("error", "keys") not in found

    async def test_a_public_certificate_that_expires_soon_is_warned_of(
        self, admin: Admin, environment: dict[str, str], tmp_path: Path
    ) -> None:
        context, files = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), Authority(tmp_path).options()
        context.load_cert_chain(files["tls-cert-file"], files["tls-key-file"])
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
        host, port = server.sockets[0].getsockname()
        environment |= {"TOKEN_SERVICE_BASE_URL": f"https://{host}:{port}", "TOKEN_SERVICE_WEB_URL": "https://[::1]:1"}

        found = await self.read_findings(admin)
        server.close()

        assert found["warning", "TOKEN_SERVICE_BASE_URL"].startswith(f"{host}:{port}: the certificate expires on ")
        assert found["note", "TOKEN_SERVICE_WEB_URL"].startswith("the certificate of ::1:1 cannot be read from here")

    @pytest.mark.parametrize(
        ("variables", "level", "subject"),
        [
            ({"TOKEN_SERVICE_BASE_URL": "http://auth.example"}, "error", "TOKEN_SERVICE_BASE_URL"),
            ({"TOKEN_SERVICE_TRUSTED_PROXIES": "0.0.0.0/0"}, "error", "TOKEN_SERVICE_TRUSTED_PROXIES"),
            ({"TOKEN_SERVICE_BASE_URL": "https://auth.example"}, "warning", "TOKEN_SERVICE_TRUSTED_PROXIES"),
            ({"TOKEN_SERVICE_REFRESH_GRACE": "0"}, "warning", "TOKEN_SERVICE_REFRESH_GRACE"),
            ({"TOKEN_SERVICE_ACESS_TOKEN_TTL": "60"}, "warning", "environment"),
            (
                {"TOKEN_SERVICE_SECRET_KEY": f"{SECRET_KEY},{SECRET_KEY} of tomorrow"},
                "note",
                "TOKEN_SERVICE_SECRET_KEY",
            ),
        ],
    )
    async def test_settings_that_look_unsafe_are_named(
        self, admin: Admin, environment: dict[str, str], variables: dict[str, str], level: str, subject: str
    ) -> None:
        environment |= variables

        assert (level, subject) in await self.read_findings(admin)

    @pytest.mark.clause("decided-short-secret-warned")
    async def test_a_short_client_secret_is_warned_of_until_it_is_replaced(self, admin: Admin) -> None:
        assert "shorter than 20 characters" in (await self.read_findings(admin))["warning", "client web-shop"]

        await admin("client", "rotate-secret", "web-shop", "--json", "--yes")

        assert ("warning", "client web-shop") not in await self.read_findings(admin)

    @pytest.mark.clause("decided-client-lifetimes")
    async def test_lifetimes_of_a_client_that_look_unsafe_are_named(
        self, admin: Admin, environment: dict[str, str]
    ) -> None:
        environment["TOKEN_SERVICE_SECRET_KEY"] = f"{SECRET_KEY},{SECRET_KEY} of tomorrow"
        await admin("client", "update", "phone-app", "--refresh-grace", "0", "--refresh-token-ttl", "90d")

        found = await self.read_findings(admin)

        assert found["warning", "client phone-app"].startswith("refresh_grace: no grace period")
        assert "90 d (a refresh token's lifetime)" in found["note", "TOKEN_SERVICE_SECRET_KEY"]

    async def test_doctor_only_warns_of_a_trial_provider_that_is_down(self, admin: Admin, store: redis.Redis) -> None:
        store.set("realm:{registry}:cep", '{"client_id":"us","issuer":"http://localhost:1"}')

        found = await self.read_findings(admin)

        assert "metadata" in found["warning", "realm cep"]
        assert ("error", "realm cep") not in found

    @pytest.mark.clause("decided-external-username")
    async def test_a_realm_is_checked_at_its_provider(self, admin: Admin, store: redis.Redis) -> None:
        record = '{"client_id":"us","issuer":"http://no-provider.invalid","username_claim":"nickname"}'
        store.set("realm:{registry}:cep", record)

        found = await self.read_findings(admin)

        assert found["warning", "realm cep"].startswith("username_claim nickname is not permanent")
        assert "metadata" in found["error", "realm cep"]
        assert found["note", "realm cep"].endswith(
            "provider: http://127.0.0.1:8000/authorization/callback (from this command's settings)"
        )

    @pytest.mark.clause("decided-backchannel-logout")
    @pytest.mark.parametrize("claim", ["sub", "oid"])
    async def test_doctor_tells_which_logout_uri_to_register(
        self, admin: Admin, store: redis.Redis, claim: str
    ) -> None:
        endpoints = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        record = dict.fromkeys(endpoints, "https://a.example") | {"client_id": "us", "issuer": "https://a.example"}
        store.set("realm:{registry}:cep", json.dumps(record | {"username_claim": claim}))

        said = [finding["message"] for finding in (await admin("doctor", "--json")).json]

        uri = "http://127.0.0.1:8000/oauth2/v1/backchannel-logout/cep"
        assert any(f"back-channel logout URI to register at the provider: {uri}" in says for says in said) is (
            claim == "sub"
        )
        assert any(says.startswith("no back-channel logout: it needs username_claim sub") for says in said) is (
            claim != "sub"
        )


class TestHashSecret:
    def test_a_secret_in_a_file_becomes_its_hash(self, tmp_path: Path) -> None:
        file = tmp_path / "secret"
        file.write_text("a secret: ü, of some length\n")

        answer = type_in("hash-secret", "--file", str(file), environment={})

        assert verify_password("a secret: ü, of some length", answer.output.rstrip())[0]
        assert "warning" not in answer.aside

    @pytest.mark.clause("decided-short-secret-warned")
    def test_short_secret_is_hashed_with_a_warning(self) -> None:
        answer = type_in("hash-secret", typed="nineteen-characters\n", environment={})

        assert verify_password("nineteen-characters", answer.output.rstrip())[0]
        assert "shorter than 20 characters" in answer.aside


def load_commands() -> Mapping[str, click.Command]:
    """Return all commands, and groups of commands, by their names."""
    context = click.Context(console)
    for name in console.list_commands(context):
        assert console.get_command(context, name), name
    return console.commands


def every_command() -> list[tuple[str, ...]]:
    """Yield the words of each command."""
    found: list[tuple[str, ...]] = []
    for name, made in load_commands().items():
        inner = getattr(made, "commands", None)
        found += [(name,)] if inner is None else [(name, verb) for verb in inner]
    return sorted(found)


@pytest.mark.parametrize("words", [(), *((name,) for name in load_commands())], ids=str)
def test_help_shows_whole_sentences(words: tuple[str, ...]) -> None:
    summaries = type_in(*words, "--help", environment={}).output.partition("Commands:\n")[2]

    assert "..." not in summaries


@pytest.mark.parametrize("words", [words for words in every_command() if words != ("hash-secret",)], ids=" ".join)
def test_the_examples_of_a_command_can_be_parsed(words: tuple[str, ...]) -> None:
    answer = type_in(*words, "--help", environment={"COLUMNS": "80"})
    _, _, examples = answer.output.partition("Examples:\n")

    assert max(map(len, answer.output.splitlines())) <= 80
    assert examples
    for line in examples.replace("\\\n", "").splitlines():
        given = shlex.split(line.partition(" < ")[0])
        command = load_commands()[given[1]]
        rest = given[2:]
        if isinstance(command, click.Group):
            command, rest = command.commands[given[2]], given[3:]
        assert given[0] == "./scripts/admin"
        command.make_context(" ".join(given), rest, resilient_parsing=False)


@pytest.mark.parametrize("words", [("client", "list"), ("user", "disable", "x", "--yes"), ("doctor",)], ids=" ".join)
def test_a_command_reports_an_unreachable_redis(environment: dict[str, str], words: tuple[str, ...]) -> None:
    answer = type_in(*words, environment=environment | {"REDIS_URL": "redis://127.0.0.1:1"}, typed="secret\n")

    assert (answer.status, answer.output) == (1, "")
    assert answer.aside.startswith("Error: Redis is unavailable or cannot serve requests: ")
    assert len(answer.aside.splitlines()) == 1


def test_stopped_embedded_store_is_reported(tmp_path: Path) -> None:
    answer = type_in("stats", environment={"TOKEN_SERVICE_DATA_DIR": str(tmp_path), "REDIS_URL": ""})

    assert answer.status == 1
    assert "start the service, or set REDIS_URL" in answer.aside


async def test_change_without_event_still_holds(admin: Admin, store: redis.Redis) -> None:
    store.set("events:{registry}:operators", "no stream")

    answer = await admin("user", "disable", BOB.username, "--yes")

    assert answer.status == 0
    assert "events_lost" in answer.aside


@pytest.mark.single_server
@pytest.mark.usefixtures("store")
def test_an_account_for_events_reads_those_of_a_user(environment: dict[str, str], redis_server: RedisServer) -> None:
    """It may not read the user's record, which has the id."""
    restricted = environment | {"REDIS_URL": redis_server.url_of("events")}

    assert type_in("events", "--user", ALICE.username, environment=restricted).status == 0
