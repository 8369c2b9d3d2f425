"""What only the tests over HTTP ask for."""

from __future__ import annotations

import httpx2
import pytest

from tests.support.browser import Browser


@pytest.fixture
def browser(http: httpx2.AsyncClient) -> Browser:
    """Of somebody at the service with the default settings."""
    return Browser(http)
