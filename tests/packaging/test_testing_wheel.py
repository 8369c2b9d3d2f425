"""The wheel of the service for tests: its plugin in an environment with pytest only, its program in another one."""

import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.packaging.locked import list_locked
from tests.support.fresh_environment import FreshEnvironment, make_fresh_environment
from tools.wheels import ROOT, TESTING, build_wheel

SEED = "clients: [{client_id: own, client_name: Own, scope: realm:main role:enduser, grant_types: []}]\n"

TESTS = """
def test_one(token_service):
    scope = "realm:main role:enduser"
    assert token_service.tokens(username="a@example.com", client_id="own", scope=scope)["scope"] == scope
    assert token_service.redis_url.startswith("unix:")

def test_two(token_service):
    token_service.advance(seconds=5)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(TESTING, tmp_path_factory.mktemp("testing_wheel"))


def run_pytest(environment: FreshEnvironment, folder: Path) -> str:
    command = [environment.python, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


def test_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    package = TESTING / "token_service_testing"
    with ZipFile(wheel) as files:
        found = {name for name in files.namelist() if ".dist-info/" not in name}

    assert found == {f"{package.name}/{file.name}" for file in package.iterdir() if file.is_file()}


def test_plugin_needs_pytest_only_and_starts_the_service(
    wheel: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The service starts with the first test that uses it, so a broken command fails no other test."""
    program = make_fresh_environment(tmp_path_factory.mktemp("program") / "venv", list_locked())
    program.install(str(build_wheel(ROOT, tmp_path_factory.mktemp("service_wheel"))))
    application = make_fresh_environment(
        tmp_path_factory.mktemp("application") / "venv", ["pytest", "pluggy", "iniconfig", "packaging", "pygments"]
    )
    for environment in (program, application):
        environment.install(str(wheel))
        environment.check()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_client.py").write_text(TESTS)
    (tmp_path / "own.yaml").write_text(SEED)
    options = "[pytest]\ntoken_service_seed = own.yaml\ntoken_service_command = "

    (tmp_path / "pytest.ini").write_text(f"{options}{program.python} -m token_service_testing\n")
    assert "2 passed" in run_pytest(application, tmp_path)

    (tmp_path / "tests" / "test_other.py").write_text("def test_other(): pass\n")
    (tmp_path / "pytest.ini").write_text(f"{options}false\n")
    told = run_pytest(application, tmp_path)
    assert "1 passed, 2 errors" in told
    assert "the token service did not start" in told
