"""A pytest plugin, which pytest finds by itself where this distribution is installed."""

import pytest

from .gateway import BearerLookup
from .gateway.testing import FakeLookup


@pytest.fixture
def fake_lookup(monkeypatch: pytest.MonkeyPatch) -> FakeLookup:
    """A FakeLookup without tokens, which answers in place of every BearerLookup of the application."""
    fake = FakeLookup()
    monkeypatch.setattr(BearerLookup, "lookup", fake.lookup)
    monkeypatch.setattr(BearerLookup, "watch", fake.watch)
    monkeypatch.setattr(BearerLookup, "now_ms", fake.now_ms)
    return fake
