"""The private names of libraries that the service uses.

A new version of a library may take them away without a notice. So pyproject.toml bounds these libraries above, and a
lock with a newer version fails here, where the name is, instead of in production.
"""

from __future__ import annotations

import ast
import logging
import tomllib
from importlib.util import find_spec

import pytest
import uvicorn
from prometheus_client import Counter, Histogram
from uvicorn.protocols.http import httptools_impl
from uvicorn.supervisors import multiprocess

from tests.support.servers import CHECKOUT

USED = {
    "_srcfile": "observability/logs.py does not look for the caller of a log line",
    "_sum": "observability/metric_buffers.py adds many observations at once",
    "_buckets": "observability/metric_buffers.py, likewise",
}
"""Attributes of other objects than `self` whose names begin with an underscore."""

CONTRACT = [
    (logging, "_srcfile"),
    (uvicorn.Server, "shutdown"),
    (uvicorn.Server, "on_tick"),
    (uvicorn.Server, "handle_exit"),
    (httptools_impl, "STATUS_LINE"),
    (httptools_impl.HttpToolsProtocol, "_unset_keepalive_if_required"),
    (httptools_impl.HttpToolsProtocol, "on_message_begin"),
    (httptools_impl.HttpToolsProtocol, "on_headers_complete"),
    (httptools_impl.HttpToolsProtocol, "on_body"),
    (httptools_impl.HttpToolsProtocol, "on_message_complete"),
    (httptools_impl.HttpToolsProtocol, "on_response_complete"),
    (multiprocess, "Process"),
    (multiprocess.Multiprocess, "handle_hup"),
    (multiprocess.Multiprocess, "keep_subprocess_alive"),
]
"""The names of the standard library, uvicorn and prometheus_client that are private or not promised."""


def test_only_these_private_names_of_other_objects_are_used() -> None:
    found = {
        node.attr
        for path in (CHECKOUT / "service").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if ast.unparse(node.value) not in ("self", "cls", "super()")
    }

    assert found - own_private_names() == set(USED)


def own_private_names() -> set[str]:
    """Return the private names that classes of the service define or set on themselves."""
    names = set()
    for path in (CHECKOUT / "service").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node.value) == "self"
            ):
                names.add(node.attr)
    return names | {"_fields", "_replace", "_asdict"}


@pytest.mark.parametrize(("owner", "name"), CONTRACT, ids=lambda each: getattr(each, "__name__", each))
def test_what_is_used_of_the_libraries_is_there(owner: object, name: str) -> None:
    assert hasattr(owner, name)


def test_a_metric_keeps_its_numbers_where_the_buffers_add_to_them() -> None:
    histogram = Histogram("test", "A histogram.", ["label"], registry=None).labels("x")
    counter = Counter("test", "A counter.", ["label"], registry=None).labels("x")

    assert hasattr(histogram, "_sum")
    assert hasattr(histogram, "_buckets")
    assert hasattr(counter, "inc")


def test_a_server_has_the_attributes_that_the_draining_server_sets() -> None:
    server = uvicorn.Server(uvicorn.Config("x:y"))

    assert server._captured_signals == []
    assert server.should_exit is server.force_exit is False


@pytest.mark.parametrize("library", ["uvicorn", "prometheus-client"])
def test_the_libraries_with_private_names_in_use_are_bounded_above(library: str) -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    (bounds,) = (each for each in project["dependencies"] if each.startswith(library))

    assert "," in bounds
    assert "<" in bounds
    assert find_spec(library.replace("-", "_"))
