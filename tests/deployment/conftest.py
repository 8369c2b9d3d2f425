"""What the tests of this folder share."""

import re
from typing import Any

import pytest
import yaml

from tests.support.servers import CHECKOUT

COMPOSE = CHECKOUT / "deployment" / "compose.yaml"


@pytest.fixture(scope="session")
def compose() -> Any:
    """Return compose.yaml with the address that its first lines show."""
    text = COMPOSE.read_text()
    variables = re.findall(r"(?<!\$)\$\{(\w+)", text)
    (address,) = re.findall(r"#\s+TOKEN_SERVICE_BASE_URL=(\S+) docker compose", text)
    assert variables == ["TOKEN_SERVICE_BASE_URL"]
    return yaml.safe_load(re.sub(r"\$\{TOKEN_SERVICE_BASE_URL:\?[^}]*\}", address, text))
