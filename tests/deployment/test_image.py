"""The image: what the steps of the Containerfile build, and the service and the console that run in it.

No container engine is used; see containerfile.py and container.py. The environment and the files are those of an
instance in compose.yaml.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conftest import SECRET_KEY, SEED
from tests.deployment.container import WITH_PARENT, Container, Network, private_network, running_container
from tests.deployment.containerfile import (
    CONTAINERFILE,
    Builder,
    Image,
    download_packages,
    make_base,
    make_context,
    read_instructions,
)
from tests.support.clients_and_users import ALICE, TOKEN, login_form
from tests.support.curl import __file__ as curl
from tests.support.servers import CHECKOUT, server_binary, stop
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("debootstrap") is None, reason="needs root on Linux, and debootstrap"
    ),
]

DEPLOYMENT: Final = CHECKOUT / "deployment"
PASSWORD: Final = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base") / "root")


@pytest.fixture(scope="module")
def image(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    folder = tmp_path_factory.mktemp("image")
    packages = folder / "packages"
    download_packages(packages)
    builder = Builder(base, make_context(folder / "context"), packages, folder / "stages")
    (folder / "stages").mkdir()
    yield builder.build(read_instructions(CONTAINERFILE.read_text()))
    shutil.rmtree(folder)
    shutil.rmtree(base)


@pytest.fixture(scope="module")
def instance(compose: Any) -> Any:
    return compose["services"]["instance-1"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The secrets, readable for each user in a folder of its own, and the names of the containers."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "hosts").write_text("127.0.0.1 localhost redis\n")
    (folder / "secrets").mkdir()
    for name, text in (("redis_password", PASSWORD), ("secret_key", SECRET_KEY), ("seed.yaml", SEED.read_text())):
        (folder / "secrets" / name).write_text(text)
        (folder / "secrets" / name).chmod(0o444)
    return folder


@contextmanager
def network_with_redis(files: Path, folder: Path) -> Iterator[Network]:
    """Return a network with Redis on its usual port, started as in compose.yaml."""
    environment = {
        "PATH": os.environ["PATH"],
        "REDIS_SERVER": server_binary(),
        "REDIS_PASSWORD_FILE": str(files / "secrets" / "redis_password"),
    }
    with private_network() as network, (folder / "redis.log").open("wb") as log:
        start = [*WITH_PARENT, *network.enter, str(DEPLOYMENT / "redis-start"), "--dir", str(folder)]
        redis = subprocess.Popen(start, env=environment, stdout=log, stderr=log)
        yield network
        stop(redis)


@pytest.fixture(scope="module")
def network(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with network_with_redis(files, tmp_path_factory.mktemp("redis")) as network:
        yield network


@contextmanager
def healthy_container(image: Image, network: Network, instance: Any, files: Path) -> Iterator[Container]:
    """Run the service, and wait until the health check of compose.yaml succeeds."""
    with running_container(image, network, instance["environment"], instance["tmpfs"], files) as container:
        check, *command = instance["healthcheck"]["test"]
        assert check == "CMD"
        wait_until(
            lambda: container.process.poll() is not None or container.execute(*command).returncode == 0,
            "the health check",
        )
        assert container.process.poll() is None, container.log.read_text()
        yield container


@pytest.fixture(scope="module")
def container(image: Image, network: Network, instance: Any, files: Path) -> Iterator[Container]:
    with healthy_container(image, network, instance, files) as container:
        yield container


def test_the_root_is_read_only_and_the_secrets_are_files(container: Container) -> None:
    for folder in ("/", "/srv/token-service", "/var/tmp"):
        assert "Read-only file system" in container.execute("touch", f"{folder}/new").stderr
    environment = container.execute("cat", "/proc/1/environ").stdout

    assert PASSWORD not in environment
    assert SECRET_KEY not in environment


def test_the_service_gives_a_token(container: Container, network: Network) -> None:
    form = {"client_id": "phone-app"} | login_form(ALICE, "realm:main role:enduser")
    fields = [word for name, value in form.items() for word in ("--data-urlencode", f"{name}={value}")]
    address = f"http://127.0.0.1:{container.image.ports[0]}{TOKEN}"

    answer = subprocess.run(
        [*network.enter, sys.executable, curl, "-i", *fields, address], capture_output=True, text=True, check=True
    )

    assert answer.stdout.startswith("HTTP/1.1 200 ")
    assert '"access_token":' in answer.stdout


@pytest.mark.parametrize(
    ("command", "text", "shown"),
    [
        (("client", "list"), "", "phone-app"),
        (("user", "list"), "", ALICE.username),
        (("seed", "/run/secrets/seed.yaml"), "", "No changes"),
        (("doctor",), "", "is reachable, accepts writes and runs"),
        (("token", "inspect"), "tsat1_" + "0" * 47, "was never issued"),
    ],
)
def test_the_console_runs_in_the_container(
    container: Container, command: tuple[str, ...], text: str, shown: str
) -> None:
    done = container.execute("token-service-admin", *command, text=text)

    assert shown in done.stdout + done.stderr
