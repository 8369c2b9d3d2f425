"""A backup that is made and restored with the commands of the guide, and its documented gaps."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from service.config.settings import load_settings
from tests.admin.conftest import type_in
from tests.conftest import Clock, environment_of, serving
from tests.support.browser import SESSIONS, Browser, is_login_page
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    PHONE_APP,
    PHONE_CALLBACK,
    WEB_SHOP,
    OAuthClient,
    access_key_of,
    assert_error,
    revoke_all,
    tokens_of,
    verify,
)
from tests.support.left_out import REDIS_SERVER, leave_out
from tests.support.servers import CHECKOUT, RedisServer, knows_users, server_binary, start_redis, stop
from tests.support.waiting import wait_until

GUIDE = (CHECKOUT / "docs/how-to/back-up-and-restore.md").read_text()
MAKING, RESTORING = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
CONSOLE = f"cd {CHECKOUT} && {sys.executable} -m service.admin"
KEEPS_DATA = ("--appendonly", "yes")

pytestmark = [
    pytest.mark.clause("decided-restored-backup", "decided-revoke-all-issued-before"),
    pytest.mark.skipif(
        not knows_users(server_binary()), reason="only from Redis 7 on is the append-only file a folder"
    ),
    pytest.mark.usefixtures("redis_check_aof"),
]


@pytest.fixture
def redis_check_aof() -> None:
    """Leave the test out without this program, which Debian installs with the server."""
    if shutil.which("redis-check-aof") is None:
        leave_out(REDIS_SERVER)


class Machine:
    """A machine with the files where the guide expects them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("redis", "backup"):
            (folder / name).mkdir()
        self.redis: RedisServer = start_redis(folder / "redis", *KEEPS_DATA)
        self.stopped: list[str] = []

    def follow(self, commands: str) -> None:
        """Run the lines of a block of the guide. Fails with the first line that fails."""
        folder = self._folder
        for line in commands.splitlines():
            if line.startswith("cd "):
                folder = Path(self._here(line.split()[1]))
            elif line.startswith("systemctl "):
                self._control(*line.split()[1:3])
            else:
                line = self._here(line).replace(
                    "token-service-admin", f"cd {CHECKOUT} && {sys.executable} -m service.admin"
                )
                environment = os.environ | environment_of(self.redis, REDIS_URL=self.redis.url_of("console"))
                subprocess.run(["bash", "-ec", line], cwd=folder, env=environment, check=True, capture_output=True)

    def _here(self, text: str) -> str:
        here = text.replace("/var/lib/token-service-redis", str(self._folder / "redis"))
        return re.sub(r"/backup/token-service-.*?\.tar\.gz", f"{self._folder}/backup/made.tar.gz", here)

    def _control(self, verb: str, unit: str) -> None:
        self.stopped += [unit] if verb == "stop" else []
        if unit == "token-service-redis":
            if verb == "stop":
                stop(self.redis.process)
            else:
                self.redis = start_redis(self._folder / "redis", *KEEPS_DATA, port=self.redis.port)


async def test_restored_backup_keeps_later_revocations(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    settings = load_settings(environment_of(machine.redis))
    before, after = RESTORING.split("token-service-admin")
    console = environment_of(machine.redis, REDIS_URL=machine.redis.url_of("console"))
    try:
        with machine.redis.connect() as store:
            async with serving(settings, Clock(store)) as http:
                browser = Browser(http)
                await browser.sign_in()
                revoked, refreshed, bobs, shops = [
                    dict(tokens_of(await client.log_in(http, person)))
                    for client, person in ((PHONE_APP, ALICE), (PHONE_APP, ALICE), (PHONE_APP, BOB), (WEB_SHOP, ALICE))
                ]
                code = await Browser(http).get_code()

                made_at, _ = store.time()
                machine.follow(MAKING)

                assert (await PHONE_APP.revoke(http, revoked["refresh_token"])).status_code == 200
                assert (await revoke_all(http, bobs["access_token"])).status_code == 200
                newer = dict(tokens_of(await PHONE_APP.refresh(http, refreshed["refresh_token"])))
                since = dict(tokens_of(await PHONE_APP.log_in(http, BOB)))
                for words in (("client", "delete", WEB_SHOP.client_id), ("user", "delete", BOB.username)):
                    assert (await asyncio.to_thread(type_in, *words, "--yes", environment=console)).status == 0
                await browser.submit(await browser.open(SESSIONS), "/sessions/end-all", {})

        machine.follow(before)
        with machine.redis.connect() as store:
            for tokens in (revoked, bobs, shops):  # the backup still has the revoked tokens
                assert store.exists(access_key_of(tokens["access_token"]))
            wait_until(
                lambda: store.time()[0] > made_at, "another second, since the guide's command uses whole seconds"
            )
            machine.follow("token-service-admin" + after)
            assert machine.stopped == ["token-service", "token-service-redis"]

            async with serving(settings, Clock(store)) as http:
                browser.http = http
                for tokens in (revoked, refreshed, bobs, shops, newer, since):
                    await assert_dead(http, tokens, WEB_SHOP if tokens is shops else PHONE_APP)
                assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
                assert is_login_page(await browser.open(SESSIONS))
                # The operator repeats the steps that the guide names.
                assert (await WEB_SHOP.log_in(http, ALICE)).status_code == 200
                assert (await PHONE_APP.log_in(http, BOB)).status_code == 200
    finally:
        stop(machine.redis.process)


async def assert_dead(http: httpx2.AsyncClient, tokens: dict[str, str], client: OAuthClient) -> None:
    assert (await verify(http, tokens["access_token"])).status_code == 401
    assert_error(await client.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")
