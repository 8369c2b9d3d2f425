"""The wheel of the service: its content, and a start from it in an environment with the locked packages only."""

import os
import subprocess
from pathlib import Path
from zipfile import ZipFile

import httpx2
import pytest

from service import __version__
from tests.packaging.locked import list_locked
from tests.support.fresh_environment import FreshEnvironment, make_fresh_environment
from tests.support.servers import CHECKOUT, running_service
from tools.wheels import ROOT, build_wheel

FILES = {
    *CHECKOUT.glob("templates/**/*.*"),
    CHECKOUT / "docs" / "openapi.yaml",
    CHECKOUT / "examples" / "seed.yaml",
    CHECKOUT / "redis.conf",
}
"""The files outside of the package that the program reads. The wheel has them in service/files."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("service_wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> FreshEnvironment:
    environment = make_fresh_environment(tmp_path_factory.mktemp("installed") / "venv", list_locked())
    environment.install(str(wheel))
    environment.check()
    return environment


def test_the_wheel_has_every_file_of_the_program_and_no_other(wheel: Path) -> None:
    package = {file for file in CHECKOUT.glob("service/**/*.*") if "__pycache__" not in file.parts}
    expected = {str(file.relative_to(CHECKOUT)) for file in package if file.is_file()}
    expected |= {f"service/files/{file.relative_to(CHECKOUT)}" for file in FILES}

    with ZipFile(wheel) as files:
        found = {name for name in files.namelist() if ".dist-info/" not in name}

    assert found == expected


def test_the_wheel_has_the_version_of_the_package(wheel: Path) -> None:
    """The gateway library's wheel has it too; see test_gateway_wheel.py."""
    assert wheel.name == f"opaque_token_service-{__version__}-py3-none-any.whl"


def test_the_installed_service_runs_with_the_example_seed(installed: FreshEnvironment, tmp_path: Path) -> None:
    """It runs with its embedded store. The data folder is the one of the user, not one beside the packages."""
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
    login = {
        "grant_type": "password",
        "client_id": "phone-app",
        "username": "alice@example.com",
        "password": "correct horse battery staple",
        "scope": "realm:main role:enduser",
    }
    with running_service(tmp_path, environment, python=installed.python, cwd=tmp_path) as service:
        with httpx2.Client(base_url=service.url) as http:
            assert http.get("/healthz").status_code == 200
            assert http.get("/").headers["content-type"].startswith("text/html")
            assert http.post("/oauth2/v1/token", data=login).json()["token_type"] == "Bearer"
        console = subprocess.run(
            [installed.folder / "bin" / "token-service-admin", "user", "list"],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=True,
        )

    assert "alice@example.com" in console.stdout
    assert (tmp_path / "state" / "token-service" / "secret_key").is_file()


def test_the_data_folder_is_in_the_home_folder(installed: FreshEnvironment, tmp_path: Path) -> None:
    program = "import os; from service.config.settings import load_settings; print(load_settings(os.environ).data_dir)"

    output = subprocess.run(
        [installed.python, "-c", program],
        cwd=tmp_path,
        env={"HOME": "/home/alice"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert output == "/home/alice/.local/state/token-service\n"
