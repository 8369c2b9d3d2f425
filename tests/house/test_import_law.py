"""The import law: which layer may know which, held against every import in the service."""

import ast
import importlib
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.servers import CHECKOUT

SERVICE = CHECKOUT / "service"
FILES = sorted(SERVICE.rglob("*.py"))


def imports_of(text: str) -> Iterator[str]:
    """Every module that a text imports, wherever the import stands."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def imports_in(path: Path) -> tuple[str, ...]:
    return tuple(imports_of(path.read_text()))


def is_in(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def name_of(path: Path) -> str:
    return path.relative_to(SERVICE).as_posix()


def offences(files: Iterable[Path], forbidden: Iterable[str]) -> list[str]:
    """`file: module` for each import of something forbidden."""
    packages = tuple(forbidden)
    return [f"{name_of(path)}: {module}" for path in files for module in imports_in(path) if is_in(module, packages)]


def files_under(*places: str) -> list[Path]:
    """Files of folders (`store`) or single files (`app.py`)."""
    return [path for path in FILES if is_in(name_of(path).replace("/", "."), places)]


def files_outside(*places: str) -> list[Path]:
    inside = files_under(*places)
    return [path for path in FILES if path not in inside]


def test_the_reader_of_imports_sees_every_form() -> None:
    text = "import redis.asyncio as r\nfrom service import app\ndef f():\n    from starlette.requests import Request\n"

    assert list(imports_of(text)) == ["redis.asyncio", "service.app", "starlette.requests.Request"]
    assert is_in("redis.asyncio", ["redis"])
    assert not is_in("redistribution", ["redis"])


def test_the_protocol_knows_only_the_standard_library_its_records_and_itself() -> None:
    allowed = {*sys.stdlib_module_names, "msgspec"}
    strangers = [
        f"{name_of(path)}: {module}"
        for path in files_under("protocol")
        for module in imports_in(path)
        if module.partition(".")[0] not in allowed and not is_in(module, ["service.protocol"])
    ]

    assert files_under("protocol")
    assert not strangers


@pytest.mark.parametrize("module", ["asyncio", "time", "datetime", "random", "secrets", "os", "socket", "threading"])
def test_the_protocol_has_no_clock_no_randomness_and_does_no_input_or_output(module: str) -> None:
    assert not offences(files_under("protocol"), [module])


def test_only_the_store_speaks_to_redis() -> None:
    assert offences(files_under("store"), ["redis"])
    assert not offences(files_outside("store"), ["redis"])


@pytest.mark.parametrize("library", ["httpcore2", "joserfc"])
def test_only_the_realms_speak_to_other_servers(library: str) -> None:
    assert offences(files_under("realms"), [library])
    assert not offences(files_outside("realms"), [library])


def test_only_the_metrics_know_the_client_of_prometheus() -> None:
    """And what an API imports does not: it may have metrics of its own, and share them among workers of its own."""
    assert offences(files_under("metrics.py"), ["prometheus_client"])
    assert not offences(files_outside("metrics.py"), ["prometheus_client"])
    assert not offences(files_under("gateway", "store", "protocol"), ["service.metrics"])


def test_only_the_endpoints_the_root_and_the_backend_of_the_gateway_know_the_web_framework() -> None:
    assert offences(files_under("endpoints"), ["starlette"])
    assert not offences(files_outside("endpoints", "app.py", "gateway.authentication.py"), ["starlette"])


def test_nothing_imports_the_root_or_the_console() -> None:
    assert not offences(FILES, ["service.app"])
    assert not offences(files_outside("admin"), ["service.admin"])


def test_the_console_is_built_of_the_same_parts_and_not_of_the_pages() -> None:
    assert offences(files_under("admin"), ["service.registry"])
    assert not offences(files_under("admin"), ["service.endpoints", "service.rendering", "service.metrics"])


def test_the_server_finds_the_root_by_its_name() -> None:
    from service.serving.arguments import APPLICATION

    module, _, factory = APPLICATION.partition(":")

    assert callable(getattr(importlib.import_module(module), factory))


def test_the_store_knows_nothing_above_it() -> None:
    above = ("app", "endpoints", "realms", "registry", "gateway", "admin", "settings", "hashing", "audit")

    assert not offences(files_under("store"), [f"service.{name}" for name in above])


@pytest.mark.parametrize(
    ("layer", "above"),
    [
        ("gateway", ("app", "endpoints", "realms", "registry", "admin", "settings", "credentials", "hashing")),
        ("registry", ("app", "endpoints", "realms", "gateway", "admin", "settings")),
        ("realms", ("app", "endpoints", "gateway", "admin", "settings")),
        ("endpoints", ("app", "admin", "gateway.middleware", "gateway.authentication")),
    ],
)
def test_no_layer_knows_what_is_built_on_it(layer: str, above: tuple[str, ...]) -> None:
    assert files_under(layer)
    assert not offences(files_under(layer), [f"service.{name}" for name in above])


def test_the_settings_know_neither_redis_nor_the_web() -> None:
    """Besides the protocol they need the form of a Redis address and the names of the durabilities only."""
    known = {module for module in imports_in(SERVICE / "settings.py") if is_in(module, ["service"])}
    known = {module for module in known if not is_in(module, ["service.protocol"])}

    assert not offences([SERVICE / "settings.py"], ["redis", "starlette"])
    needed = {"redis_url", "durability"}
    assert {f"service.store.{name}" for name in needed} == {module.rpartition(".")[0] for module in known}
    assert not offences([SERVICE / "store" / f"{name}.py" for name in needed], ["redis", "starlette", "service"])


def test_no_two_modules_import_each_other() -> None:
    """A circle would show that something stands in the wrong place."""
    modules = {f"service.{name_of(path).removesuffix('.py').replace('/', '.')}": path for path in FILES}
    known = {
        module: {each for name in imports_in(path) for each in (name, name.rpartition(".")[0]) if each in modules}
        for module, path in modules.items()
    }

    TopologicalSorter(known).prepare()  # raises CycleError
