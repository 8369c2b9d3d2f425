"""The service for tests, which the fixture `token_service` starts from this checkout."""

import os
from collections.abc import Iterator

import httpx2
import pytest
from token_service_testing.pytest_plugin import TokenService

from tests.support.servers import CHECKOUT

PATHS = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "distributions" / "testing")])
"""Where other processes find the service and the service for tests. Tests in other folders must not inherit it."""


@pytest.fixture(scope="session", autouse=True)
def started_from_the_checkout(request: pytest.FixtureRequest) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PATHS)
        request.getfixturevalue("_started_token_service")


@pytest.fixture(autouse=True)
def checkout_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PATHS)


@pytest.fixture
def api(token_service: TokenService) -> Iterator[httpx2.Client]:
    """An HTTP client of the service for tests."""
    with httpx2.Client(base_url=token_service.url) as api:
        yield api
