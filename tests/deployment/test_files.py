"""Configuration files to copy: linters accept them, and their values agree with one another.

These tests run nothing. test_stack.py runs the same configurations, and test_image.py builds the image.
"""

import configparser
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.admin.commands.doctor import estimate_memory
from service.config.reading import BadSettings
from service.config.settings import load_settings, unknown_variables
from service.crypto.hash_kinds import MAX_MEMORY_KIB
from tests.conftest import SECRET_KEY, SEED
from tests.support.servers import CHECKOUT, server_binary

DEPLOYMENT = CHECKOUT / "deployment"
PROGRAMS = Path(sys.executable).parent
SECRETS = ("redis_password", "secret_key", "seed.yaml", "certificate.pem", "key.pem")


def run(*command: str) -> None:
    answer = subprocess.run([PROGRAMS / command[0], *command[1:]], cwd=DEPLOYMENT, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_containerfile_passes_hadolint() -> None:
    run("hadolint", "Containerfile")


def test_compose_file_is_valid() -> None:
    run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml")


def test_every_container_is_locked_down(compose: Any) -> None:
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "cap_add" not in service, name
        assert "healthcheck" in service, name
        assert name.startswith("instance-") or service["user"] not in ("root", "0"), name
    assert "USER 10001:10001" in (DEPLOYMENT / "Containerfile").read_text()


@pytest.mark.clause("decided-memory-of-hashes")
def test_limits_of_memory_have_room_for_all_hashes(compose: Any) -> None:
    """test_kubernetes.py has the limit of a pod."""
    unit = (DEPLOYMENT / "token-service.service").read_text()
    kubernetes = (DEPLOYMENT / "kubernetes" / "deployment.yaml").read_text()
    files = (
        unit,
        kubernetes,
        (DEPLOYMENT / "compose.yaml").read_text(),
        (CHECKOUT / "docs/reference/limits.md").read_text(),
    )
    cores = [int(re.findall("up to ([0-9]+) cores", file)[0]) for file in files]

    assert len(set(cores)) == 1
    assert estimate_memory(2, cores[0], MAX_MEMORY_KIB) <= 2 << 30 < estimate_memory(2, cores[0] + 1, MAX_MEMORY_KIB)
    assert "MemoryMax=2G" in unit
    assert compose["services"]["instance-1"]["mem_limit"] == "2g"


def test_only_nginx_is_reached_from_outside(compose: Any) -> None:
    assert [name for name, service in compose["services"].items() if "ports" in service] == ["nginx"]
    assert compose["networks"]["store"] == {"internal": True}
    assert compose["services"]["redis"]["networks"] == ["store"]


def test_secrets_are_files_and_have_no_defaults(compose: Any) -> None:
    assert compose["secrets"] == {name: {"file": f"./secrets/{name}"} for name in SECRETS}
    assert "deployment/secrets/" in (CHECKOUT / ".gitignore").read_text().splitlines()
    for service in compose["services"].values():
        assert not [
            name for name in service.get("environment", {}) if re.search("KEY|URL", name) and "BASE" not in name
        ]


def test_compose_trusts_nginx_and_lists_instances(compose: Any) -> None:
    def address(name: str) -> str:
        return str(compose["services"][name]["networks"]["front"]["ipv4_address"])

    for name in ("instance-1", "instance-2"):
        assert compose["services"][name]["environment"]["TOKEN_SERVICE_TRUSTED_PROXIES"] == address("nginx")
    upstreams = re.findall(r"server (\S+):8000 ", compose["configs"]["instances"]["content"])
    assert upstreams == [address("instance-1"), address("instance-2")]


def test_settings_that_are_shipped_are_settings(compose: Any) -> None:
    shipped = dict(compose["services"]["instance-1"]["environment"])
    shipped |= dict(re.findall(r"^([A-Z_]+)=(.*)$", (DEPLOYMENT / "environment.example").read_text(), re.MULTILINE))
    assert list(unknown_variables(shipped)) == []


def test_the_settings_of_an_instance_are_accepted(compose: Any, tmp_path: Path) -> None:
    (tmp_path / "seed.yaml").write_text(SEED.read_text())
    (tmp_path / "secret_key").write_text(SECRET_KEY)
    (tmp_path / "redis_url").write_text("redis://:password@redis:6379/0")
    for name in ("instance-1", "instance-2"):
        given = compose["services"][name]["environment"]
        environment = {variable: value.replace("/run/secrets/", f"{tmp_path}/") for variable, value in given.items()}
        environment |= {"REDIS_URL_FILE": str(tmp_path / "redis_url")}
        environment |= {"TOKEN_SERVICE_SECRET_KEY_FILE": str(tmp_path / "secret_key")}
        settings = load_settings(environment)
        assert settings.base_url == "https://id.example.com"
        assert not settings.has_public_example_seed


def test_unit_passes_secrets_as_files(tmp_path: Path) -> None:
    lines = re.findall(r"^([A-Z_]+)=(.*)$", (DEPLOYMENT / "environment.example").read_text(), re.MULTILINE)
    environment = dict(lines) | {"TOKEN_SERVICE_SEED_FILE": ""}
    unit = (DEPLOYMENT / "token-service.service").read_text()
    files = dict(re.findall(r"([A-Z_]+_FILE)=%d/([a-z_]+)", unit))
    assert files == {"REDIS_URL_FILE": "redis_url", "TOKEN_SERVICE_SECRET_KEY_FILE": "secret_key"}
    assert all(f"LoadCredential={name}:/etc/token-service/{name}\n" in unit for name in files.values())
    environment |= {variable: str(tmp_path / name) for variable, name in files.items()}
    with pytest.raises(BadSettings):
        load_settings(environment)
    (tmp_path / "redis_url").write_text("redis://:password@127.0.0.1:6379/0\n")
    (tmp_path / "secret_key").write_text(secrets.token_hex(32))
    assert load_settings(environment).secret_keys


@pytest.mark.parametrize("unit", ["token-service.service", "token-service-redis.service"])
def test_unit_runs_existing_files_as_its_own_user(unit: str) -> None:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    parser.read(DEPLOYMENT / unit)
    service = parser["Service"]
    assert service["User"] != "root"
    program = service["ExecStart"].split()[0].removeprefix("/opt/token-service/")
    assert os.access(CHECKOUT / program, os.X_OK)
    assert service["ProcSubset"] == "pid"
    for line in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictNamespaces"):
        assert service[line] == "yes", line
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""


@pytest.mark.parametrize(
    ("password", "configuration", "message"),
    [
        ("too short", None, "shorter than 32 characters"),
        ("p" * 32, "user default on >another\n", "has no line that begins with"),
    ],
)
def test_redis_refuses_to_start_without_an_effective_password(
    tmp_path: Path, password: str, configuration: str | None, message: str
) -> None:
    (tmp_path / "password").write_text(password)
    environment = {"PATH": os.environ["PATH"], "REDIS_SERVER": server_binary()}
    environment["REDIS_PASSWORD_FILE"] = str(tmp_path / "password")
    if configuration is not None:
        (tmp_path / "redis.conf").write_text(configuration)
        environment["REDIS_CONFIGURATION"] = str(tmp_path / "redis.conf")
    answer = subprocess.run([DEPLOYMENT / "redis-start"], env=environment, capture_output=True, text=True)
    assert (answer.returncode, message in answer.stderr) == (2, True)
