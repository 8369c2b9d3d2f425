"""The prefix of a function's name agrees with what the function returns."""

import ast
from collections.abc import Callable
from typing import Final

from tests.support.servers import CHECKOUT

RULES: Final[dict[str, Callable[[str], bool]]] = {
    "find_": lambda returned: "None" in returned,
    "check_": lambda returned: returned == "None",
    "judge_": lambda returned: returned != "None",
    "is_": lambda returned: returned == "bool",
}
"""Each prefix, also behind an underscore, and whether it permits a returned type."""


def test_a_name_agrees_with_the_returned_type() -> None:
    functions = [
        (f"{path.name}: {node.name}", node.name.lstrip("_"), ast.unparse(node.returns))
        for path in (CHECKOUT / "service").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns
    ]

    assert [
        place
        for place, name, returned in functions
        for prefix, permits in RULES.items()
        if name.startswith(prefix) and not permits(returned)
    ] == []
