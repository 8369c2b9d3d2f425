"""The wheel of the gateway library: its content, and its use in an environment with nothing but what it needs."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from service import __version__
from tests.conftest import AnyRedis
from tests.packaging.metadata import read_metadata
from tests.support.clients_and_users import ALICE, PHONE_APP, tokens_of
from tests.support.fresh_environment import FreshEnvironment, make_fresh_environment
from tests.support.servers import CHECKOUT, free_port

PUBLIC = ("__init__", "fastapi", "testing", "pytest_plugin")

LOOK_UP = """
import asyncio, sys
import service
from token_service_gateway import BearerLookup

async def look_up():
    async with BearerLookup(sys.argv[1]) as lookup:
        for token in sys.argv[2:]:
            grant = await lookup.lookup(token)
            print(grant and grant.username)

asyncio.run(look_up())
print(service.OWNER, *sorted(name for name in sys.modules if name.startswith("service.")))
"""


REFUSE = """
import asyncio, logging, sys
from token_service_gateway import BearerLookup, BearerMiddleware

async def send(message):
    if message["type"] == "http.response.start":
        print(message["status"])

async def request():
    async with BearerLookup(sys.argv[1]) as lookup:
        headers = [(b"authorization", b"Bearer tsat1_" + b"0" * 47)]
        await BearerMiddleware(None, lookup)({"type": "http", "headers": headers}, None, send)

logging.basicConfig()
asyncio.run(request())
"""


@pytest.fixture(scope="module")
def api(gateway_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> FreshEnvironment:
    """An environment that has the library, hiredis and msgspec only."""
    environment = make_fresh_environment(tmp_path_factory.mktemp("api") / "venv", ["hiredis", "msgspec"])
    environment.install(str(gateway_wheel))
    return environment


def run(environment: FreshEnvironment, program: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [environment.python, "-W", "error", "-c", program, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def find_imports(file: Path) -> Iterator[Path]:
    """Yield the files of the modules that this one imports relatively, wherever the import stands."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            module = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            yield module / "__init__.py" if module.is_dir() else module.with_suffix(".py")


def test_the_wheel_has_the_modules_that_it_imports_only(gateway_library: Path) -> None:
    package = gateway_library / "token_service_gateway"
    waiting, reached = [package / f"{name}.py" for name in PUBLIC], set[Path]()
    while waiting:
        file = waiting.pop()
        if file not in reached:
            reached.add(file)
            waiting += find_imports(file)
    packages = {file.parent / "__init__.py" for file in reached}

    assert (package / "py.typed").is_file()
    assert reached | packages == set(gateway_library.rglob("*.py"))


def test_each_module_of_the_wheel_is_one_file_of_the_checkout(gateway_library: Path) -> None:
    package = gateway_library / "token_service_gateway"
    for file in package.rglob("*.py"):
        module = file.relative_to(package)
        folder = CHECKOUT / ("service" if len(module.parts) > 1 else "distributions/gateway/token_service_gateway")

        assert file.read_text() == (folder / module).read_text()


def test_the_wheel_needs_hiredis_and_msgspec_only(gateway_wheel: Path) -> None:
    metadata = read_metadata(gateway_wheel)
    needed = metadata.get_all("Requires-Dist", [])

    assert {each.partition(">")[0] for each in needed if "extra ==" not in each} == {"hiredis", "msgspec"}
    assert metadata.get_all("Provides-Extra") == ["fastapi", "sentinel"]
    assert metadata["Version"] == __version__


@pytest.mark.single_server("the environment has no redis-py, which Sentinels need")
async def test_an_api_with_a_package_service_looks_tokens_up(
    http: httpx2.AsyncClient, redis_server: AnyRedis, api: FreshEnvironment, tmp_path: Path
) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "__init__.py").write_text('OWNER = "the API"\n')

    output = run(api, LOOK_UP, redis_server.url, access_token, "tsat1_" + "0" * 47, cwd=tmp_path).stdout

    assert output == f"{ALICE.username}\nNone\nthe API\n"
    api.check()


def test_an_outage_is_logged_under_the_name_of_the_library(api: FreshEnvironment, tmp_path: Path) -> None:
    answer = run(api, REFUSE, f"redis://127.0.0.1:{free_port()}", cwd=tmp_path)

    assert answer.stdout == "503\n"
    assert "ERROR:token_service_gateway.gateway:Redis is unavailable: " in answer.stderr


def test_sentinels_without_redis_py_name_the_extra(api: FreshEnvironment, tmp_path: Path) -> None:
    url = "redis+sentinel://gateway:the-password@host:26379/main"
    program = f"from token_service_gateway import BearerLookup; BearerLookup({url!r})"

    answer = run(api, program, cwd=tmp_path)

    assert answer.returncode == 1
    assert answer.stderr.endswith("need the package redis: install opaque-token-service-gateway[sentinel]\n")
    assert "the-password" not in answer.stderr.splitlines()[-1]
