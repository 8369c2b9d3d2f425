"""The service for tests, which the fixture `token_service` starts from this checkout."""

import os
from collections.abc import Iterator

import httpx2
import pytest
from token_service_testing.pytest_plugin import TokenService

from tests.support.servers import CHECKOUT


@pytest.fixture(scope="session", autouse=True)
def checkout_on_the_path() -> Iterator[None]:
    """Let other processes import the service and the service for tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "distributions" / "testing")]))
        yield


@pytest.fixture
def api(token_service: TokenService) -> Iterator[httpx2.Client]:
    """An HTTP client of the service for tests."""
    with httpx2.Client(base_url=token_service.url) as api:
        yield api
