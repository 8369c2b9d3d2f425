"""Tests change a limit of the service by a parameter or an attribute, and assert on outcomes: they patch nothing of it.

The patches that are left are listed here, each with its reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.support.servers import CHECKOUT

TESTS = CHECKOUT / "tests"

PATCHING = re.compile(r"\b(setattr|delattr|patch|patch\.object)$")
"""The functions of pytest, of unittest.mock and of Python that replace an attribute."""

LEFT = {
    "conftest.py: password_hashing._argon2id": "hashes are quick in the whole process, also where a library makes them",
    "conftest.py: password_hashing.MEMORY_KIB": "likewise",
    "conftest.py: password_hashing.PASSES": "likewise",
    "lua/fake_redis.py: module.time": "the modules are those of fakeredis, whose clock it is",
    "redis_client/settled_time.py: Connection.__init__": "notes each connection of the process, whoever opens it",
    "redis_client/settled_time.py: connection_module._connect_to": "likewise",
    "redis_client/test_handshake.py: connection_module._make_ssl_context": (
        "the context is made once in a process, from the certificates of the machine"
    ),
    "redis_client/test_handshake.py: loop.sock_connect": "the event loop of the standard library",
    "spec/test_late_news.py: RegistryCache.invalidate": (
        "Redis cannot be told to keep invalidations back on a connection that is as good as ever"
    ),
    "store/sessions.py: connection._run": "a script sees a clock that stands still only if its text is another",
    "store/sessions.py: connection.clock_offset_ms": "likewise",
    "support/loop_time.py: module.read_clock": "the clock of the process is replaced wherever it was imported",
}


def describe_imports(tree: ast.Module) -> dict[str, str]:
    """Return the module or the object behind each name that the file imports."""
    imports: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                imports[each.asname or each.name.partition(".")[0]] = each.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imports |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return imports


def find_root(node: ast.expr) -> str:
    """Return the first name of `a.b.c`, or "" if it begins with another expression."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def find_patches(text: str) -> Iterator[str]:
    """Yield each attribute that a text replaces, unless it is one of a library's.

    Objects that the text does not import, such as instances, may be ours, so they are yielded as well.
    """
    tree = ast.parse(text)
    imports = describe_imports(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
                if PATCHING.search(ast.unparse(function)) and name.startswith("service."):
                    yield name
            case ast.Call(func=function, args=[target, ast.Constant(value=str(name)), *_]):
                origin = imports.get(find_root(target), "service")
                if PATCHING.search(ast.unparse(function)) and origin.partition(".")[0] == "service":
                    yield f"{ast.unparse(target)}.{name}"
            case ast.Assign(targets=[ast.Attribute() as target]) | ast.AugAssign(target=ast.Attribute() as target):
                if imports.get(find_root(target), "").partition(".")[0] == "service":
                    yield ast.unparse(target)


def test_only_these_patches_of_the_service_are_left() -> None:
    found = {
        f"{path.relative_to(TESTS)}: {patched}"
        for path in TESTS.rglob("*.py")
        if "node_modules" not in path.parts
        for patched in find_patches(path.read_text())
    }

    assert found == LEFT.keys()
