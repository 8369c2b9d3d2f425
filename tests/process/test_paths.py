"""Paths of a whole process are compared as they were sent, by the routes, by CORS and in the log."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from service.protocol.logout_token import LOGOUT_PATH
from service.routes import make_routes
from service.worker import Worker
from tests.conftest import environment_of
from tests.support.clients_and_users import BACK_OFFICE, BOB, REVOKE, REVOKE_ALL, TOKEN, USERS
from tests.support.servers import RedisServer, ServiceProcess, free_port, running_service
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

pytestmark = pytest.mark.clause("decided-paths-as-sent")

PREFLIGHT = {"Origin": "https://shop.example", "Access-Control-Request-Method": "POST"}
ALLOWED = "access-control-allow-origin"


@pytest.fixture
def service(redis_server: RedisServer, store: redis.Redis, registry: None, tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path, environment_of(redis_server, LOG_LEVEL="debug")) as service:
        yield service


def ask(port: int, method: str, target: str, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str]]:
    """Send the target as it stands. Returns the status and the headers of the answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=MAX_WAIT_SECONDS)) as connection:
        connection.request(method, target, b"{}" if method == "PUT" else None, headers or {})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}


def list_other_spellings(path: str) -> Iterator[str]:
    """Yield paths that some program takes for this one, with their changes before the last segment, and then in it."""
    segments, last = path.rsplit("/", 1)
    yield from (f"/{path}", f"/.{path}", f"/x/..{path}", f"/%2E{path}", f"/;x{path}")
    if path != "/":
        yield from (f"/%{ord(path[1]):x}{path[2:]}", f"/%25{ord(path[1]):x}{path[2:]}")
    if segments:
        joints = ("//", "/./", "/x/../", "%2F", "%2f", "/%2E/", ";x/", "%0A/", "\\")
        yield from (f"{segments}{joint}{last}" for joint in joints)
    for end in ("%0A", "%0D", "%00", "%20", "%09", ";", ";x", "%3Bx", "%3F", "%23", "%2F", "/.", "//"):
        yield path + end


def list_unknown_paths(worker: Worker) -> Iterator[str]:
    """Yield other spellings of every path. What follows `users/` is always a name, and one segment may be a realm's."""
    for route in make_routes(worker):
        path = route.path.replace("{realm}", "cep").replace("{username:path}", BOB.username)
        fixed = route.path.partition("{")[0]
        spellings = list_other_spellings(path)
        yield from (spelling for spelling in spellings if fixed == path or not spelling.startswith(fixed))


async def test_no_other_spelling_is_served(service: ServiceProcess, worker: Worker, store: redis.Redis) -> None:
    paths = list(dict.fromkeys(list_unknown_paths(worker)))
    users = sorted(store.scan_iter("user:*"))

    for path in paths:
        for method in ("GET", "POST", "PUT", "DELETE"):
            assert ask(service.port, method, path, BACK_OFFICE.basic)[0] == 404, (method, path)

    assert sorted(store.scan_iter("user:*")) == users
    wait_until(lambda: service.log.read_text().count('"DELETE"') == len(paths), "the lines")
    lines = [json.loads(line) for line in service.log.read_text().splitlines() if '"reason":"unknown_path"' in line]
    logged = [
        path.replace(f"users\\{BOB.username}", BOB.username).replace(BOB.username, "{username}") for path in paths
    ]
    assert [line["path"] for line in lines] == [path for path in logged for _ in range(4)]


def test_only_the_path_itself_allows_cross_origin_calls(service: ServiceProcess) -> None:
    for path in (TOKEN, REVOKE, REVOKE_ALL):
        status, headers = ask(service.port, "OPTIONS", path, PREFLIGHT)
        assert (status, headers[ALLOWED]) == (204, PREFLIGHT["Origin"])
        for spelling in list_other_spellings(path):
            status, headers = ask(service.port, "OPTIONS", spelling, PREFLIGHT)
            assert (status, ALLOWED in headers) == (404, False), spelling


@pytest.mark.parametrize("target", ["/healthz#", "/healthz#x", "/healthz?a#b", f"{USERS}a#b@example.com", "#"])
def test_a_fragment_is_refused(service: ServiceProcess, target: str) -> None:
    for method in ("GET", "DELETE"):
        assert ask(service.port, method, target, BACK_OFFICE.basic)[0] == 400


def test_an_escaped_realm_is_unknown(service: ServiceProcess) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    for name in ("c%65p", "cep%0A", "cep%00", "cep;x", "%63ep", "cep%2F"):
        assert ask(service.port, "POST", LOGOUT_PATH + name, headers)[0] == 404, name


def test_a_dot_segment_is_no_user_name(service: ServiceProcess) -> None:
    for name in (".", "..", "%2e", ".%2E", "../users/x", "x/..", "..%2Fx", "x%2f%2e%2e%2Fx", "x%2F."):
        for method in ("PUT", "DELETE"):
            headers = BACK_OFFICE.basic | {"Content-Type": "application/json"}
            assert ask(service.port, method, USERS + name, headers)[0] == 400, name


def test_a_root_path_belongs_to_no_path(
    redis_server: RedisServer, store: redis.Redis, registry: None, tmp_path: Path
) -> None:
    """The proxy removes it, and the server puts it before each path."""
    environment = environment_of(redis_server, LOG_LEVEL="info")
    with running_service(tmp_path, environment, "--root-path", "/login") as service:
        status, headers = ask(service.port, "OPTIONS", TOKEN, PREFLIGHT)
        assert (status, headers[ALLOWED]) == (204, PREFLIGHT["Origin"])
        assert ask(service.port, "POST", REVOKE_ALL)[0] == 401
        assert ask(service.port, "POST", f"/login{REVOKE_ALL}")[0] == 404
        assert ask(service.port, "DELETE", f"{USERS}{BOB.username}", BACK_OFFICE.basic)[0] == 204
        wait_until(lambda: '"DELETE"' in service.log.read_text(), "the lines")
        assert f'"path":"{REVOKE_ALL}"' in service.log.read_text()


def test_the_metrics_have_one_path(
    redis_server: RedisServer, store: redis.Redis, registry: None, tmp_path: Path
) -> None:
    port = free_port()
    environment = environment_of(redis_server, TOKEN_SERVICE_METRICS_ADDRESS=f"127.0.0.1:{port}")
    with running_service(tmp_path, environment):
        assert ask(port, "GET", "/metrics")[0] == 200
        for spelling in list_other_spellings("/metrics"):
            assert ask(port, "GET", spelling)[0] == 404, spelling
