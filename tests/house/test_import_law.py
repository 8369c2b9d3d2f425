"""The import law: one order of the packages, which package may import which library, and how long a file may be."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.servers import CHECKOUT

SERVICE = CHECKOUT / "service"
FILES = sorted(SERVICE.rglob("*.py"))

ORDER = (
    {"system", "protocol"},
    {"redis_client"},
    {"gateway"},
    {"observability"},
    {"crypto", "embedded"},
    {"config"},
    {"store"},
    {"registry"},
    {"realms", "components"},
    {"web", "admin"},
    {"serving"},
    {"worker"},
    {"routes"},
    {"app"},
)
"""A module imports its own package and the packages of the sets before its own."""

LIBRARIES = {
    "hiredis": {"redis_client"},
    "redis": {"redis_client.sentinels"},
    "python_multipart": {"protocol.parameters"},
    "starlette": {"web", "app", "routes"},
    "fastapi": {"gateway.fastapi_guard"},
    "prometheus_client": {"observability"},
    "httpcore2": {"realms.provider"},
    "joserfc": {"realms.provider"},
    "ctypes": {"system"},
}
"""The packages and modules that alone may import a library."""

DISTRIBUTED = {"protocol", "redis_client", "gateway"}
"""These import each other relatively and nothing else of ours, so that they can be a distribution of their own."""


def imports_of(text: str, package: str = "") -> Iterator[str]:
    """Yield every imported name with its module, wherever the import stands. Relative ones become absolute."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def module_of(path: Path) -> str:
    """Return the dotted name below `service`, such as `store.keys`; that of a package for its `__init__`."""
    return path.relative_to(SERVICE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")


@cache
def imports_in(path: Path) -> tuple[str, ...]:
    package = ".".join(("service", *path.relative_to(SERVICE).parent.parts))
    return tuple(imports_of(path.read_text(), package))


def is_in(module: str, packages: set[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def test_module_imports_only_lower_packages() -> None:
    height = {package: number for number, packages in enumerate(ORDER) for package in packages}
    offences = []
    for path in FILES:
        own = module_of(path).partition(".")[0]
        if own in ("__init__", "__main__"):
            continue
        for name in imports_in(path):
            other = name.removeprefix("service.").partition(".")[0]
            if name.startswith("service.") and other in height and other != own and height[other] >= height[own]:
                offences.append(f"{module_of(path)}: {name}")

    assert {module_of(path).partition(".")[0] for path in FILES} == {*height, "__init__", "__main__"}
    assert not offences


def test_redis_py_is_loaded_only_with_an_address_of_sentinels() -> None:
    """redis-py takes 9 MiB and 150 ms of each process that imports it."""
    program = "import sys, service.worker, service.admin.context; print('redis' in sys.modules)"
    command = [sys.executable, "-c", program]

    assert subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout == "False\n"


def test_only_some_packages_import_a_library() -> None:
    users = [
        (module_of(path), library)
        for path in FILES
        for library in LIBRARIES
        if any(is_in(name, {library}) for name in imports_in(path))
    ]

    assert {library for _, library in users} == LIBRARIES.keys()
    assert [user for user in users if not is_in(user[0], LIBRARIES[user[1]])] == []


def test_the_distributed_packages_import_each_other_relatively() -> None:
    for path in FILES:
        if is_in(module_of(path), DISTRIBUTED):
            absolute = [name for name in imports_of(path.read_text()) if name.startswith("service.")]
            ours = {name.split(".")[1] for name in imports_in(path) if name.startswith("service.")}
            assert not absolute
            assert ours <= DISTRIBUTED


def test_protocol_package_is_pure() -> None:
    impure = {"asyncio", "time", "datetime", "random", "secrets", "os", "socket", "threading"}
    allowed = {*sys.stdlib_module_names, "msgspec", "python_multipart", "service"} - impure

    assert not [
        name
        for path in (SERVICE / "protocol").glob("*.py")
        for name in imports_in(path)
        if name.split(".")[0] not in allowed
    ]


def test_no_file_has_more_than_400_lines() -> None:
    assert [module_of(path) for path in FILES if len(path.read_text().splitlines()) > 400] == []
