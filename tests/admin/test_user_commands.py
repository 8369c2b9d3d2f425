"""`user list · show · create · set-password · disable · enable · delete`."""

import re
from pathlib import Path

import httpx2
import pytest
import redis

from service.protocol.provider import IdentityProvider
from service.worker import Worker
from tests.admin.conftest import Admin, Answer, is_live
from tests.conftest import Clock
from tests.support.browser import SESSIONS, Browser
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, UserCredentials
from tests.support.weak_hashes import BCRYPT_HASH

EVE = UserCredentials("eve@example.com", "eve's own password")
CREATE = ("user", "create", "eve@example.com", "--role", "enduser", "--role", "enduser", "--name", "Eve")


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    file = tmp_path / "password"
    file.write_text(EVE.password + "\n", "utf-8-sig")  # as PowerShell writes it
    return str(file)


async def test_created_user_logs_in_with_the_password_from_the_file(
    admin: Admin, http: httpx2.AsyncClient, password_file: str
) -> None:
    created = await admin(*CREATE, "--password-file", password_file, "--json")

    assert created.json["roles"] == ["enduser"]
    assert (await PHONE_APP.log_in(http, EVE)).status_code == 200


@pytest.mark.clause("decided-console-ends-sessions")
@pytest.mark.parametrize(
    "words", [("disable",), ("delete",), ("set-password",), ("update", "--remove-role", "enduser")], ids=" ".join
)
async def test_sessions_of_a_user_end_at_once(admin: Admin, http: httpx2.AsyncClient, words: tuple[str, ...]) -> None:
    alices, bobs = [(await PHONE_APP.log_in(http, person)).json() for person in (ALICE, BOB)]
    verb, *options = words

    done = await admin("user", verb, ALICE.username, *options, "--yes", typed="a new password\n")

    assert done.status == 0
    assert not await is_live(http, alices["access_token"])
    assert (await PHONE_APP.refresh(http, alices["refresh_token"])).json()["error"] == "invalid_grant"
    assert await is_live(http, bobs["access_token"])
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 400


async def test_a_new_password_may_spare_the_sessions(admin: Admin, http: httpx2.AsyncClient) -> None:
    tokens = (await PHONE_APP.log_in(http, ALICE)).json()

    done = await admin("user", "set-password", ALICE.username, "--keep-sessions", "--json", typed="a new password\n")

    assert done.json["sessions_revoked"] is False
    assert await is_live(http, tokens["access_token"])
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 400
    assert (await PHONE_APP.log_in(http, UserCredentials(ALICE.username, "a new password"))).status_code == 200


@pytest.mark.clause("decided-seed-force")
async def test_a_forced_seed_restores_a_hash_that_a_login_replaced(
    admin: Admin, http: httpx2.AsyncClient, tmp_path: Path
) -> None:
    file, imported = tmp_path / "seed.yaml", UserCredentials(EVE.username, "a password")
    file.write_text(f"users: [{{username: {EVE.username}, password_hash: {BCRYPT_HASH}, roles: [enduser]}}]\n")
    await admin("seed", str(file))
    assert (await PHONE_APP.log_in(http, imported)).status_code == 200
    await admin("user", "set-password", EVE.username, "--yes", typed=f"{EVE.password}\n")
    assert (await PHONE_APP.log_in(http, imported)).status_code == 400

    await admin("seed", str(file), "--force", "--yes")

    assert (await PHONE_APP.log_in(http, imported)).status_code == 200


async def test_a_disabled_user_may_log_in_again_once_enabled(admin: Admin, http: httpx2.AsyncClient) -> None:
    await admin("user", "disable", ALICE.username, "--yes")
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 400

    assert (await admin("user", "enable", ALICE.username)).status == 0

    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200


async def test_an_id_is_given_or_random_and_shown(admin: Admin, password_file: str) -> None:
    given = await admin(*CREATE, "--id", "customer-1", "--password-file", password_file, "--json")
    made = await admin("user", "create", "ann@example.com", "--password-file", password_file, "--json")

    listed = {user["username"]: user["id"] for user in (await admin("user", "list", "--json")).json}
    assert (given.json["id"], listed[EVE.username]) == ("customer-1", "customer-1")
    assert len(made.json["id"]) == 22
    assert (await admin("user", "show", "ann@example.com", "--json")).json["id"] == made.json["id"]
    assert "id: customer-1" in (await admin("export")).output


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        (("--id", "~x"), 2, "Error: id: expected 1 to 128 printable ASCII characters"),
        (("--id", "customer-1", "--realm", "cep"), 2, "Error: id: expected none: only users of realm main"),
        (("--id", "taken"), 1, "id taken already belongs to user ann@example.com"),
    ],
    ids=str,
)
async def test_a_wrong_id_is_refused(
    admin: Admin, worker: Worker, password_file: str, options: tuple[str, ...], status: int, says: str
) -> None:
    await worker.registry.realms.put("cep", IdentityProvider(client_id="us", issuer="https://login.example.org"))
    await admin("user", "create", "ann@example.com", "--id", "taken", "--password-file", password_file)
    in_main = () if "cep" in options else ("--password-file", password_file)

    refused = await admin("user", "create", "eve@example.com", *options, *in_main)

    assert (refused.status, says in refused.aside) == (status, True), refused.aside
    assert (await admin("user", "show", "eve@example.com")).status == 1


async def test_a_renamed_user_keeps_id_and_password(admin: Admin, http: httpx2.AsyncClient) -> None:
    tokens = (await PHONE_APP.log_in(http, BOB)).json()
    before = (await admin("user", "show", BOB.username, "--json")).json

    unasked = await admin("user", "rename", BOB.username, "Robert@Example.com")
    assert (unasked.status, await is_live(http, tokens["access_token"])) == (1, True)
    renamed = await admin("user", "rename", BOB.username, "Robert@Example.com", "--yes", "--json")

    assert renamed.json["id"] == before["id"]
    assert not await is_live(http, tokens["access_token"])
    assert (await PHONE_APP.log_in(http, UserCredentials("robert@example.com", BOB.password))).status_code == 200
    assert (await admin("user", "show", BOB.username)).status == 1
    events = (await admin("events", "--user", "robert@example.com", "--json")).lines
    assert [event["former_username"] for event in events if event["event"] == "user_renamed"] == [BOB.username]
    for words in ((BOB.username, "eve@example.com"), ("robert@example.com", ALICE.username)):
        assert (await admin("user", "rename", *words, "--yes")).status == 1


async def test_the_list_shows_all_users_of_the_realm_and_no_hash(admin: Admin) -> None:
    await admin("user", "disable", BOB.username, "--yes")

    listed, table = await admin("user", "list", "--json"), await admin("user", "list")

    assert {user["username"]: user["disabled"] for user in listed.json} == {
        "alice@example.com": False,
        "bob@example.com": True,
        "meter@example.com": False,
    }
    assert "argon2" not in listed.output + table.output
    assert len(table.output.splitlines()) == 4


async def test_a_user_is_shown_with_their_sessions(admin: Admin, http: httpx2.AsyncClient) -> None:
    await PHONE_APP.log_in(http, ALICE)

    shown = (await admin("user", "show", ALICE.username, "--json")).json

    assert (shown["roles"], shown["disabled"], shown["password_set"]) == (["enduser", "organisation"], False, True)
    assert [session["client_id"] for session in shown["sessions"]] == ["phone-app"]
    assert "phone-app" in (await admin("user", "show", ALICE.username)).output


async def test_show_tells_how_long_a_name_is_locked(admin: Admin, http: httpx2.AsyncClient, clock: Clock) -> None:
    assert "failed logins" in (unlocked := await admin("user", "show", BOB.username)).output
    assert "none" in unlocked.output
    for _ in range(10):
        await PHONE_APP.log_in(http, UserCredentials(BOB.username, "wrong"))
    clock.advance(20)

    shown = await admin("user", "show", BOB.username)
    of_address, of_all = (await admin("user", "show", BOB.username, "--json")).json["failed_logins"]

    seconds = of_address["wait_seconds"]
    assert 30 < seconds <= 40
    assert [of_address[name] for name in ("origin", "failed", "limit")] == ["203.0.113.7", 10, 10]
    assert [of_all[name] for name in ("origin", "failed", "limit", "wait_seconds")] == ["", 10, 100, 0]
    assert re.search(r"10 of 10 from 203\.0\.113\.7, next try in \d\d s; 10 of 100 from all IP addresses", shown.output)


async def test_show_and_unlock_cover_a_browser_with_an_earlier_login(admin: Admin, http: httpx2.AsyncClient) -> None:
    browser = Browser(http)
    await browser.submit(await browser.sign_in(BOB), "/sessions/sign-out", {})
    await browser.log_in(await browser.open(SESSIONS), UserCredentials(BOB.username, "wrong"))

    shown = (await admin("user", "show", BOB.username, "--json")).json["failed_logins"]
    assert [row["origin"].partition(" ")[0] for row in shown] == ["browser", "browser"]
    assert (await admin("user", "unlock", BOB.username, "--json")).json["cleared"] == 2
    assert (await admin("user", "show", BOB.username, "--json")).json["failed_logins"] == []


async def test_user_show_omits_expired_failures(admin: Admin, http: httpx2.AsyncClient, clock: Clock) -> None:
    await PHONE_APP.log_in(http, UserCredentials(BOB.username, "wrong"))
    clock.advance(10)
    (of_all,) = (await admin("user", "show", BOB.username, "--json")).json["failed_logins"]
    assert of_all["origin"] == ""
    clock.advance(60)

    assert (await admin("user", "show", BOB.username, "--json")).json["failed_logins"] == []


class TestExternalUsers:
    """Users of an external realm, which may have no entry."""

    @pytest.fixture
    def cep(self, store: redis.Redis) -> None:
        store.set("realm:{registry}:cep", '{"client_id":"us","default_roles":["enduser","partner"]}')

    async def show(self, admin: Admin) -> Answer:
        return await admin("user", "show", "carol", "--realm", "cep", "--json")

    async def test_unlisted_external_user_can_be_disabled_and_enabled(self, admin: Admin, cep: None) -> None:
        assert (await self.show(admin)).status == 1

        assert (await admin("user", "disable", "carol", "--realm", "cep", "--yes")).status == 0

        shown = (await self.show(admin)).json
        assert (shown["disabled"], shown["roles"]) == (True, ["enduser", "partner"])
        assert (await admin("user", "enable", "carol", "--realm", "cep")).status == 0
        assert (await self.show(admin)).json["disabled"] is False

    @pytest.mark.clause("decided-external-email-folded")
    async def test_email_address_in_any_case_means_one_user(self, admin: Admin, store: redis.Redis) -> None:
        store.set("realm:{registry}:cep", '{"client_id":"us","username_claim":"email","default_roles":["enduser"]}')
        ids = set()
        for name in ("Carol@Coop.example", "carol@coop.example"):
            assert (await admin("user", "disable", name, "--realm", "cep", "--yes")).status == 0
            user = (await admin("user", "show", name, "--realm", "cep", "--json")).json
            ids.add(user["id"])
            assert (user["username"], user["disabled"]) == ("carol@coop.example", True)

        assert len(ids) == 1
        again = await admin("user", "create", "CAROL@coop.example", "--realm", "cep")
        assert "user carol@coop.example already exists in realm cep" in again.aside

    async def test_embedded_redis_needs_no_password(self, admin: Admin, cep: None, password_file: str) -> None:
        create = ("user", "create", "carol", "--realm", "cep", "--role", "enduser")

        refused = await admin(*create, "--password-file", password_file)

        assert (refused.status, "log in at its identity provider" in refused.aside) == (2, True)
        assert (await admin(*create)).status == 0
        assert (await self.show(admin)).json["password_set"] is False
        assert (await admin("user", "create", "ca\u200brol", "--realm", "cep")).status == 0  # the provider decides
