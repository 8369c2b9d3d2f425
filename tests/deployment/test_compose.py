"""The settings and the secrets in compose.yaml are right. test_image.py runs a container with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from service.config.settings import load_settings
from tests.conftest import SECRET_KEY, SEED

INSTANCES: Final = ("instance-1", "instance-2")
SECRETS: Final = "/run/secrets/"

Service = Mapping[str, Any]


@pytest.fixture(scope="module")
def services(compose: Any) -> Any:
    """Return the services by name."""
    return compose["services"]


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
