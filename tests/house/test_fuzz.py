"""Every parser gets garbage from some test: see tests/fuzz."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers import CHECKOUT

FuzzedName = str
"""A module and a function, as in `scope.parse_scope`."""


def find_functions(files: Iterator[Path], word: str) -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield these functions from the files that contain the word."""
    for file in files:
        text = file.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if word in text else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield file, node


def find_parsers() -> set[FuzzedName]:
    return {
        f"{file.stem}.{function.name}"
        for file, function in find_functions((CHECKOUT / "service").rglob("*.py"), "parse_")
        if function.name.lstrip("_").startswith("parse_")
    }


def find_fuzzed() -> set[FuzzedName]:
    """Return the names in the marks `fuzzes`, letter by letter."""
    return {
        name.value
        for _, function in find_functions((CHECKOUT / "tests").glob("*/test_*.py"), "mark.fuzzes")
        for mark in function.decorator_list
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.fuzzes"
        for name in mark.args
        if isinstance(name, ast.Constant) and isinstance(name.value, str)
    }


def test_every_parser_gets_garbage_from_some_test() -> None:
    """A new `parse_…` needs a test in tests/fuzz that names it in its mark."""
    assert not find_parsers() - find_fuzzed()
