"""The rules of names that a type can prove."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers import CHECKOUT

SERVICE = CHECKOUT / "service"


def functions_named(prefix: str) -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield each function of the service whose name begins with the prefix, also behind an underscore."""
    for path in sorted(SERVICE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.lstrip("_").startswith(prefix):
                yield path, node


def describe(path: Path, function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return f"{path.relative_to(SERVICE)}:{function.lineno} {function.name}"


def returned_type(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return "" if function.returns is None else ast.unparse(function.returns)


def test_a_function_that_finds_may_return_none() -> None:
    """`get_x` is the name of one that must succeed, `list_x` of one that returns several."""
    named = list(functions_named("find_"))

    assert named
    assert not [describe(*each) for each in named if "None" not in returned_type(each[1])]


def test_a_function_that_checks_returns_nothing() -> None:
    """It raises, or returns nothing."""
    named = list(functions_named("check_"))

    assert named
    assert not [describe(*each) for each in named if returned_type(each[1]) != "None"]


def test_a_public_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted(SERVICE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(SERVICE)))

    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


def test_the_limits_are_named_max_and_min() -> None:
    """`MOST_`, `LONGEST_`, `LARGEST_` and `LEAST_` would be other words for the same."""
    others = ("MOST_", "LONGEST_", "LARGEST_", "LEAST_", "SHORTEST_", "SMALLEST_")
    found = [
        f"{path.relative_to(SERVICE)}: {node.id}"
        for path in sorted(SERVICE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.lstrip("_").startswith(others)
    ]

    assert not found
