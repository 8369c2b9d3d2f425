"""compose.yaml agrees with the Containerfile, the settings, redis-start, nginx.conf and itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pytest

from service.config.settings import load_settings
from service.routes import make_routes
from service.serving.draining_server import DRAIN_SECONDS
from service.worker import Worker
from tests.conftest import SECRET_KEY, SEED
from tests.deployment.containerfile import CONTAINERFILE, read_instructions
from tests.support.servers import CHECKOUT

DEPLOYMENT: Final = CHECKOUT / "deployment"
INSTANCES: Final = ("instance-1", "instance-2")
SECRETS: Final = "/run/secrets/"
IDLE_SECONDS, PENDING_SECONDS, NGINX_SECONDS = 3, 10, 20
"""The time for idle connections and for pending requests at the end of an instance, and for those of nginx."""

Service = Mapping[str, Any]


@pytest.fixture(scope="module")
def services(compose: Any) -> Any:
    """Return the services by name."""
    return compose["services"]


@pytest.fixture(scope="module")
def containerfile() -> Mapping[str, str]:
    """Return the last instruction of each kind."""
    return {each.word: each.argument for each in read_instructions(CONTAINERFILE.read_text())}


def list_names(entries: Any) -> list[str]:
    """Return the names in a list or a mapping of secrets, configs or networks of a service."""
    return [entry["source"] if isinstance(entry, dict) else entry for entry in entries]


def list_secret_files(service: Service) -> dict[str, str]:
    """Return the file of each secret in the container."""
    entries = service.get("secrets", ())
    return {
        entry["target"] if isinstance(entry, dict) else f"{SECRETS}{entry}": name
        for entry, name in zip(entries, list_names(entries), strict=True)
    }


def list_mounts(service: Service) -> set[str]:
    """Return the places of volumes, configs and folders in memory."""
    volumes = {volume.split(":")[1] for volume in service.get("volumes", ())}
    configs = {config["target"] for config in service.get("configs", ())}
    return volumes | configs | {folder.partition(":")[0] for folder in service.get("tmpfs", ())}


def read_seconds(text: str) -> int:
    return int(text.removesuffix("s"))


@pytest.mark.parametrize("kind", ["secrets", "configs", "networks"])
def test_each_name_is_defined_and_used(compose: Any, kind: str) -> None:
    used = {name for service in compose["services"].values() for name in list_names(service.get(kind, ()))}
    assert used == set(compose[kind])


def test_each_address_is_one_of_its_network(compose: Any) -> None:
    (subnet,) = compose["networks"]["front"]["ipam"]["config"]
    addresses = [
        service["networks"]["front"]["ipv4_address"]
        for service in compose["services"].values()
        if "front" in service["networks"]
    ]
    assert len(set(addresses)) == len(addresses) == 3
    assert all(ip_address(address) in ip_network(subnet["subnet"]) for address in addresses)


async def test_the_health_check_asks_the_port_of_the_image(
    services: Mapping[str, Service], containerfile: Mapping[str, str], compose: Any, worker: Worker
) -> None:
    port = containerfile["EXPOSE"]
    upstreams = re.findall(r"server \S+:(\d+) ", compose["configs"]["instances"]["content"])
    assert f"PORT={port} " in containerfile["ENV"]
    assert upstreams == [port, port]
    for name in INSTANCES:
        command, *_, program = services[name]["healthcheck"]["test"]
        (path,) = re.findall(rf"urlopen\('http://127\.0\.0\.1:{port}(/\w+)'", program)
        assert command == "CMD"
        assert path in {route.path for route in make_routes(worker)}
        compile(program, name, "exec")


def list_secret_paths(service: Service) -> Iterator[str]:
    """Yield each file in the folder of secrets that the service, its entrypoint or its health check reads."""
    texts = [*service.get("environment", {}).values(), *service["healthcheck"]["test"]]
    if "build" in service:
        texts.append((DEPLOYMENT / "entrypoint").read_text())
    for text in texts:
        yield from re.findall(rf"{SECRETS}[\w.]+", text)


def test_a_container_has_the_secrets_that_it_reads_only(services: Mapping[str, Service]) -> None:
    for name in (*INSTANCES, "redis"):
        assert set(list_secret_paths(services[name])) == set(list_secret_files(services[name])), name
    nginx = (DEPLOYMENT / "nginx.conf").read_text()
    read = {f"/etc/nginx/{file}" for file in re.findall(r"ssl_certificate(?:_key)? (\S+);", nginx)}
    assert read == set(list_secret_files(services["nginx"]))


def test_each_file_that_is_written_is_in_memory_or_in_a_volume(services: Mapping[str, Service]) -> None:
    written = {
        name: set(re.findall(r'(?:>|mv -f )"?(/[\w/.$]+)', (DEPLOYMENT / "entrypoint").read_text()))
        for name in INSTANCES
    }
    written["nginx"] = set(re.findall(r"^pid (\S+);", (DEPLOYMENT / "nginx.conf").read_text(), re.MULTILINE))
    command = services["redis"]["command"]
    written["redis"] = {f"{command[command.index('--dir') + 1]}/appendonlydir"}
    for name, files in written.items():
        assert files
        writable = {place for place in list_mounts(services[name]) if not is_read_only(services[name], place)}
        assert all({str(each) for each in PurePosixPath(file).parents} & writable for file in files), name


def is_read_only(service: Service, place: str) -> bool:
    return any(volume.endswith(f":{place}:ro") for volume in service.get("volumes", ()))


def test_a_container_that_ends_has_time_for_its_requests(services: Mapping[str, Service]) -> None:
    for name in INSTANCES:
        needed = DRAIN_SECONDS + IDLE_SECONDS + PENDING_SECONDS
        assert read_seconds(services[name]["stop_grace_period"]) > needed
    nginx = (DEPLOYMENT / "nginx.conf").read_text()
    assert f"worker_shutdown_timeout {NGINX_SECONDS}s;" in nginx
    assert read_seconds(services["nginx"]["stop_grace_period"]) > NGINX_SECONDS


def test_the_settings_of_an_instance_are_accepted(services: Mapping[str, Service], tmp_path: Path) -> None:
    (tmp_path / "seed.yaml").write_text(SEED.read_text())
    (tmp_path / "secret_key").write_text(SECRET_KEY)
    (tmp_path / "redis_url").write_text("redis://:password@redis:6379/0")
    for name in INSTANCES:
        given = services[name]["environment"]
        environment = {variable: value.replace(SECRETS, f"{tmp_path}/") for variable, value in given.items()}
        environment |= {"REDIS_URL_FILE": str(tmp_path / "redis_url")}
        environment |= {"TOKEN_SERVICE_SECRET_KEY_FILE": str(tmp_path / "secret_key")}
        settings = load_settings(environment)
        assert settings.base_url == "https://id.example.com"
        assert not settings.has_public_example_seed
