"""The blocks of docs/clients.md, as they are in the page but for the address of the service."""

import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.conftest import environment_of
from tests.support.browser import Browser
from tests.support.clients_and_users import ALICE, PHONE_APP, WEB_SHOP
from tests.support.javascript import check_javascript
from tests.support.servers import CHECKOUT, ServiceProcess, running_service, start_redis, stop
from tests.support.waiting import MAX_WAIT_SECONDS

PAGE = (CHECKOUT / "docs" / "clients.md").read_text()
BLOCKS = dict(re.findall(r"^## (\S+) [^\n]*\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
JAVASCRIPT = """
import { createInterface } from "node:readline/promises";
console.log(login);
const address = await createInterface({ input: process.stdin }).question("");
const tokens = await callback(address);
await logOut(tokens);
console.log(tokens.scope, tokens.refresh_token);
"""
BROWSER = """
import { registerHooks } from "node:module";
const values = new Map();
const localStorage = {
  getItem: (name) => values.get(name),
  setItem: (name, value) => values.set(name, value),
  removeItem: (name) => values.delete(name),
};
globalThis.window = { crypto, localStorage, location: { assign: console.log } };
registerHooks({
  resolve: (name, context, next) => next(/^\\.[^.]*$/.test(name) ? `${name}.js` : name, context),
});
"""
"""What a browser and a bundler provide: a window, and imports without a file extension."""
APPAUTH = """
import { createInterface } from "node:readline/promises";
logIn();
window.location.search = new URL(await createInterface({ input: process.stdin }).question("")).search;
const tokens = await callback();
await logOut(tokens);
console.log(tokens.scope, tokens.refreshToken);
"""
PYTHON = """
print(login, flush=True)
tokens = callback(input())
log_out(tokens)
print(tokens["scope"], tokens["refresh_token"])
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    server = start_redis(tmp_path_factory.mktemp("redis"))
    environment = environment_of(server, TOKEN_SERVICE_SEED_FILE=str(CHECKOUT / "examples" / "seed.yaml"))
    with running_service(tmp_path_factory.mktemp("service"), environment) as service:
        yield service
    stop(server.process)


def write_program(folder: Path, library: str, service: ServiceProcess) -> list[str | Path]:
    """Write the block with its caller. Returns the command that runs it."""
    block = BLOCKS[library].replace("http://127.0.0.1:8000", service.url)
    if library == "Authlib":
        program = folder / "block.py"
        program.write_text(block + PYTHON)
        return [sys.executable, program]
    check_javascript()
    (folder / "node_modules").symlink_to(CHECKOUT / "tests" / "npm" / "node_modules")
    browser, program = folder / "browser.mjs", folder / "block.mjs"
    is_for_browsers = library == "AppAuth-JS"
    browser.write_text(BROWSER if is_for_browsers else "")
    program.write_text(block + (APPAUTH if is_for_browsers else JAVASCRIPT))
    return [Path(sys.executable).with_name("node"), "--import", browser.as_uri(), program]


@pytest.mark.parametrize("library", ["openid-client", "oauth4webapi", "Authlib", "AppAuth-JS"])
async def test_block_of_the_page_logs_in_and_out(service: ServiceProcess, tmp_path: Path, library: str) -> None:
    program = await asyncio.create_subprocess_exec(
        *write_program(tmp_path, library, service), stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    assert program.stdout is not None
    async with (
        asyncio.timeout(MAX_WAIT_SECONDS),
        httpx2.AsyncClient(base_url=service.url, timeout=MAX_WAIT_SECONDS) as http,
    ):
        browser = Browser(http)
        login = (await program.stdout.readline()).decode().strip()
        assert login, (await program.communicate())[1].decode()
        redirect = await browser.allow(await browser.open_consent_page(login, ALICE))
        output, errors = await program.communicate(redirect.headers["location"].encode() + b"\n")
        assert program.returncode == 0, errors.decode()
        scope, _, refresh_token = output.decode().strip().rpartition(" ")
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        app = PHONE_APP if library == "AppAuth-JS" else WEB_SHOP
        answer = await http.post("/oauth2/v1/token", data=form | app.credentials)

    assert scope.split("\n")[-1] == "realm:main role:enduser"
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")


def test_every_library_of_the_page_has_a_block() -> None:
    assert BLOCKS.keys() == {"openid-client", "oauth4webapi", "Authlib", "AppAuth-JS", "x/oauth2", "Spring", "AppAuth"}
