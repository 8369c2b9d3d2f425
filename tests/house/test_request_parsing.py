"""Cookies and queries of requests are read in one bounded place each, never by the framework's parsers."""

import ast
from collections.abc import Iterator

import pytest

from tests.support.servers import CHECKOUT

UNBOUNDED = {f"{name}.{part}" for name in ("request", "conn") for part in ("cookies", "query_params", "form")}
"""Attributes of a Starlette request that parse all of a cookie header, a query or a body, however long."""


def find_uses() -> Iterator[str]:
    for file in (CHECKOUT / "service").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in UNBOUNDED:
                yield f"{file.relative_to(CHECKOUT)}:{node.lineno}"


@pytest.mark.clause("decided-one-request-is-bounded")
def test_requests_are_read_by_our_parsers_only() -> None:
    assert list(find_uses()) == []
