"""A lookup for the tests of an API. With pytest, use the fixture `fake_lookup` of the module `pytest_plugin`."""

from .gateway.testing import FakeLookup, make_grant

__all__ = ["FakeLookup", "make_grant"]
