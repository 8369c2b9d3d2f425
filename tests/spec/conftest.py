"""Fixtures of the tests over HTTP."""

from __future__ import annotations

import httpx2
import pytest

from tests.support.browser import Browser


@pytest.fixture
def browser(http: httpx2.AsyncClient) -> Browser:
    """A browser at the service with the default settings."""
    return Browser(http)
