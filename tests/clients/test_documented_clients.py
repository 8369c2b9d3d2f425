"""The examples of docs/how-to/connect-a-client.md run unchanged but for the URL of the service."""

import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from service.protocol.user import identify_user
from tests.conftest import environment_of
from tests.support.browser import Browser
from tests.support.clients_and_users import ALICE, PHONE_APP, WEB_SHOP
from tests.support.javascript import check_javascript
from tests.support.servers import CHECKOUT, ServiceProcess, running_service, start_redis, stop
from tests.support.waiting import MAX_WAIT_SECONDS

PAGE = (CHECKOUT / "docs" / "how-to" / "connect-a-client.md").read_text()
FOLDER = CHECKOUT / "examples" / "clients"
JAVASCRIPT = """
import { createInterface } from "node:readline/promises";
console.log(login);
const address = await createInterface({ input: process.stdin }).question("");
const tokens = await callback(address);
const user = await getUser(tokens);
await logOut(tokens);
console.log(tokens.scope, tokens.refresh_token, user.sub);
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
const user = await getUser(tokens);
await logOut(tokens);
console.log(tokens.scope, tokens.refreshToken, user.sub);
"""
PYTHON = """
print(login, flush=True)
tokens = callback(input())
user = get_user()
log_out(tokens)
print(tokens["scope"], tokens["refresh_token"], user["sub"])
"""
FLASK = """
http = app.test_client()
print(http.get("http://127.0.0.1:9000/login").location, flush=True)
http.get(input())
with http.session_transaction(base_url="http://127.0.0.1:9000") as session:
    print(session["user"])
"""
DJANGO_SETTINGS = """
import django
from django.conf import settings

settings.configure(
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of the application",
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
)
django.setup()
"""
DJANGO = """
from django.test import Client
from django.urls import path

urlpatterns = [path("login", login), path("callback", callback)]
http = Client(headers={"host": "127.0.0.1:9000"})
print(http.get("/login")["location"], flush=True)
http.get("/callback?" + input().partition("?")[2])
print(http.session["user"])
"""
EXPRESS = """
import { request } from "node:http";
import { createInterface } from "node:readline/promises";
const server = app.listen(0);
const cookies = new Map();
const call = (path, form) => new Promise((resolve, reject) => {
  const cookie = [...cookies].map((pair) => pair.join("=")).join("; ");
  const headers = { host: "127.0.0.1:9000", cookie, "content-type": "application/x-www-form-urlencoded" };
  const options = { port: server.address().port, path, method: form ? "POST" : "GET", headers };
  const sent = request(options, async (response) => {
    for (const line of response.headers["set-cookie"] ?? []) {
      const [, name, value] = /^([^=]*)=([^;]*)/.exec(line);
      cookies.set(name, value);
    }
    resolve({ location: response.headers.location, text: Buffer.concat(await response.toArray()).toString() });
  });
  sent.on("error", reject).end(form && new URLSearchParams(form).toString());
});
const callBack = async ({ location }) => {
  console.log(location);
  const { pathname, search } = new URL(await createInterface({ input: process.stdin }).question(""));
  await call(pathname + search);
  return JSON.parse((await call("/")).text);
};
"""
"""A browser, and the user that the application's own page shows after the callback."""
PASSPORT = """
console.log((await callBack(await call("/login"))).sub);
process.exit();
"""
AUTHJS = """
const { csrfToken } = JSON.parse((await call("/auth/csrf")).text);
console.log((await callBack(await call("/auth/signin/service", { csrfToken }))).id);
process.exit();
"""
CALLERS = {
    "openid_client.mjs": ("", JAVASCRIPT),
    "appauth_browser.mjs": (BROWSER, APPAUTH),
    "passport_app.mjs": ("", EXPRESS + PASSPORT),
    "authjs_app.mjs": ("", EXPRESS + AUTHJS),
    "authlib_client.py": ("", PYTHON),
    "flask_app.py": ("", FLASK),
    "django_views.py": (DJANGO_SETTINGS, DJANGO),
}
"""What a program runs before an example and after it."""

FRAMEWORKS = ("flask_app.py", "django_views.py", "passport_app.mjs", "authjs_app.mjs")
SUBJECT = identify_user("main", ALICE.username).digest


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    server, folder = start_redis(tmp_path_factory.mktemp("redis")), tmp_path_factory.mktemp("service")
    seed, shop = folder / "seed.yaml", "redirect_uris: [http://127.0.0.1:9000/callback]"
    example = (CHECKOUT / "examples" / "seed.yaml").read_text()
    seed.write_text(example.replace(shop, f"{shop[:-1]}, http://127.0.0.1:9000/auth/callback/service]"))
    with running_service(folder, environment_of(server, TOKEN_SERVICE_SEED_FILE=str(seed))) as service:
        yield service
    stop(server.process)


def write_program(folder: Path, example: str, service: ServiceProcess) -> list[str | Path]:
    """Write the example with its caller. Returns the command that runs it."""
    text = (FOLDER / example).read_text().replace("http://127.0.0.1:8000", service.url)
    before, after = CALLERS[example]
    if after in (PYTHON, FLASK, DJANGO):
        program = folder / "example.py"
        program.write_text(before + text + after)
        return [sys.executable, program]
    check_javascript()
    (folder / "node_modules").symlink_to(CHECKOUT / "tests" / "npm" / "node_modules")
    first, program = folder / "first.mjs", folder / "example.mjs"
    first.write_text(before)
    program.write_text(text + after)
    return [Path(sys.executable).with_name("node"), "--import", first.as_uri(), program]


async def run_program(http: httpx2.AsyncClient, command: list[str | Path]) -> str:
    """Log Alice in at the address that the program prints. Returns what it prints after the callback."""
    program = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert program.stdout is not None
    async with asyncio.timeout(MAX_WAIT_SECONDS):
        browser = Browser(http)
        login = (await program.stdout.readline()).decode().strip()
        assert login, (await program.communicate())[1].decode()
        redirect = await browser.allow(await browser.open_consent_page(login, ALICE))
        output, errors = await program.communicate(redirect.headers["location"].encode() + b"\n")
    assert program.returncode == 0, errors.decode()
    return output.decode().strip()


@pytest.mark.parametrize("example", ["openid_client.mjs", "authlib_client.py", "appauth_browser.mjs"])
async def test_example_logs_in_and_out(service: ServiceProcess, tmp_path: Path, example: str) -> None:
    async with httpx2.AsyncClient(base_url=service.url, timeout=MAX_WAIT_SECONDS) as http:
        output = await run_program(http, write_program(tmp_path, example, service))
        scope, refresh_token, subject = output.rsplit(" ", 2)
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        app = PHONE_APP if example == "appauth_browser.mjs" else WEB_SHOP
        answer = await http.post("/oauth2/v1/token", data=form | app.credentials)

    assert (scope.split("\n")[-1], subject) == ("realm:main role:enduser", SUBJECT)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")


@pytest.mark.parametrize("example", FRAMEWORKS)
async def test_example_of_a_framework_learns_who_logged_in(
    service: ServiceProcess, tmp_path: Path, example: str
) -> None:
    async with httpx2.AsyncClient(base_url=service.url, timeout=MAX_WAIT_SECONDS) as http:
        assert await run_program(http, write_program(tmp_path, example, service)) == SUBJECT


def test_page_links_every_example() -> None:
    linked = re.findall(r"examples/clients/([\w.]+)", PAGE)

    assert {*linked} == CALLERS.keys() == {file.name for file in FOLDER.iterdir() if file.is_file()}


def test_page_shows_the_example_as_it_is() -> None:
    (block,) = re.findall(r"^```js\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

    assert all(part in (FOLDER / "openid_client.mjs").read_text() for part in block.split("// …\n"))
