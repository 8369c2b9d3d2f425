"""Two versions of the service on one Redis, in either order and back again.

Until the first release the other version is this commit with one more member in the records of clients and users, and
one more line in those of sessions and access tokens. From then on it is the wheel of the last release.
"""

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest
import redis

from service.protocol.user import identify_user
from service.store.keys import user_key
from tests.conftest import AnyRedis, environment_of
from tests.support.clients_and_users import ALICE, BOB, GATEWAY, PHONE_APP, revoke_all, tokens_of, verify
from tests.support.servers import CHECKOUT, ServiceProcess, running_service

LINE = "a line of a newer version"
CHANGED = (
    (
        "service/protocol/client.py",
        "    previous_secret_until_ms: int = 0\n",
        "{}    added: str = 'by a newer version'\n",
    ),
    (
        "service/protocol/user.py",
        '    revision: str = ""\n',
        "{}    added: str = msgspec.field(default_factory=lambda: 'by a newer version')\n",  # no default is written
    ),
    ("service/store/sessions/new_families.lua", "family.newer_lines = '', '', ''", f"{{}} .. '\\n{LINE}'"),
    ("service/store/sessions/families.lua", "'\\n' .. scope\n", f"'\\n' .. scope .. '\\n{LINE}'\n"),
)
"""What makes the records grow: a file, a text in it, and what stands there instead."""

pytestmark = pytest.mark.clause("decided-newer-record")


def make_newer_version(folder: Path) -> Path:
    """Copy the program, and let its records grow."""
    for name in ("service", "templates", "examples"):
        shutil.copytree(CHECKOUT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "docs").mkdir()
    for name in ("docs/openapi.yaml", "redis.conf"):
        shutil.copy(CHECKOUT / name, folder / name)
    for name, before, after in CHANGED:
        text = (folder / name).read_text()
        assert text.count(before) == 1, (name, before)
        (folder / name).write_text(text.replace(before, after.format(before)))
    return folder


class Version(NamedTuple):
    """A version that runs. Its console has the same environment."""

    service: ServiceProcess
    http: httpx2.AsyncClient
    folder: Path
    environment: dict[str, str]

    def console(self, *words: str) -> None:
        command = [sys.executable, "-m", "service.admin", *words]
        subprocess.run(command, cwd=self.folder, env=self.environment, check=True, capture_output=True)


@pytest.fixture(params=[("older", "newer"), ("newer", "older")], ids=["upgrade", "return"])
async def versions(
    request: pytest.FixtureRequest, redis_server: AnyRedis, tmp_path: Path
) -> AsyncIterator[list[Version]]:
    """Two versions in the order in which they started. The first applied the seed."""
    folders = {"older": CHECKOUT, "newer": make_newer_version(tmp_path / "newer")}
    environment = environment_of(redis_server)
    with redis_server.connect() as store:
        store.flushall()
    with ExitStack() as services:
        async with AsyncExitStack() as clients:
            started = []
            for name in request.param:
                service = services.enter_context(running_service(tmp_path, environment, cwd=folders[name]))
                http = await clients.enter_async_context(httpx2.AsyncClient(base_url=service.url))
                started.append(Version(service, http, folders[name], environment))
            yield started


@pytest.fixture
def store(redis_server: AnyRedis) -> Iterator[redis.Redis]:
    with redis_server.connect() as connection:
        yield connection


async def test_sessions_go_to_and_fro_between_two_versions(versions: list[Version]) -> None:
    for here, there in (versions, versions[::-1]):
        first = tokens_of(await PHONE_APP.log_in(here.http, ALICE))
        second = tokens_of(await PHONE_APP.refresh(there.http, first["refresh_token"]))
        retried = tokens_of(await PHONE_APP.refresh(here.http, first["refresh_token"]))
        assert retried["refresh_token"] == second["refresh_token"]
        third = tokens_of(await PHONE_APP.refresh(here.http, second["refresh_token"]))
        for each in (first, second, third):
            for http in (here.http, there.http):
                assert (await verify(http, each["access_token"])).status_code == 200
                assert (await GATEWAY.introspect(http, each["access_token"])).json()["active"]
        await PHONE_APP.revoke(there.http, third["access_token"])
        assert (await verify(here.http, third["access_token"])).status_code == 401
        await PHONE_APP.revoke(there.http, third["refresh_token"])
        assert (await verify(here.http, second["access_token"])).status_code == 401
        others = [tokens_of(await PHONE_APP.log_in(http, ALICE)) for http in (here.http, there.http)]
        assert (await revoke_all(there.http, others[0]["access_token"])).status_code == 200
        for each in others:
            assert (await PHONE_APP.refresh(here.http, each["refresh_token"])).status_code == 400
            assert (await verify(here.http, each["access_token"])).status_code == 401


async def test_lines_of_the_newer_version_outlive_the_older_one(versions: list[Version], store: redis.Redis) -> None:
    newer = next(each for each in versions if each.folder != CHECKOUT)
    older = next(each for each in versions if each.folder == CHECKOUT)
    tokens = tokens_of(await PHONE_APP.log_in(newer.http, BOB))
    for _ in range(3):
        tokens = tokens_of(await PHONE_APP.refresh(older.http, tokens["refresh_token"]))
    (record,) = [str(store.get(key)) for key in store.scan_iter("family:*")]

    assert record.endswith("\n" + LINE)
    assert tokens_of(await PHONE_APP.refresh(newer.http, tokens["refresh_token"]))


async def test_both_consoles_change_what_the_other_version_wrote(versions: list[Version], store: redis.Redis) -> None:
    for number, each in enumerate([*versions, *versions]):
        each.console("client", "update", "phone-app", "--name", f"App {number}")
        each.console("user", "update", ALICE.username, "--name", f"Alice {number}")
    for each in versions:
        assert tokens_of(await PHONE_APP.log_in(each.http, ALICE))
    alice = identify_user(ALICE.realm, ALICE.username)

    for record in (store.get("client:{registry}:phone-app"), store.hget(user_key(alice), "record")):
        assert ' 3"' in str(record)
        assert '"added":"by a newer version"' in str(record)
