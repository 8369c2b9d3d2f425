"""The private names of libraries that the service uses.

A new version of a library may take them away without a notice. So pyproject.toml bounds these libraries above, and a
lock with a newer version fails here, where the name is, instead of in production.
"""

from __future__ import annotations

import ast
import tomllib

from tests.support.servers import CHECKOUT

USED = {
    "_srcfile": "observability/logs.py does not look for the caller of a log line",
    "_sum": "observability/metrics.py adds many observations at once",
    "_buckets": "observability/metrics.py, likewise",
}
"""Attributes of other objects than `self` whose names begin with an underscore."""


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


def test_the_libraries_with_private_names_in_use_are_bounded_above() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    for library in ("uvicorn", "prometheus-client"):
        (bounds,) = (each for each in project["dependencies"] if each.startswith(library))
        assert ",<" in bounds.replace(" ", "")
