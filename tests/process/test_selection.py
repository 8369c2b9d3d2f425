"""The tests that a run leaves out are counted, and `--quick` runs tests that need Python packages only."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.selection import NOT_QUICK, QUICK_FOLDERS, TESTS, is_quick
from tests.support.servers import CHECKOUT

LEAVING_OUT = """
import pytest
from tests.support.left_out import TERMINAL, get_program, leave_out

@pytest.fixture(scope="module")
def server():
    get_program("a-program-that-no-machine-has")

@pytest.mark.parametrize("number", range(3))
def test_with_a_server(server, number): pass

def test_with_a_terminal(): leave_out(TERMINAL)

@pytest.mark.skip(reason="needless")
def test_that_is_skipped(): pass

def test_that_passes(): pass
"""


def run_tests(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    plain = {name: text for name, text in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=CHECKOUT, env=plain | variables, capture_output=True, text=True)


def run_file(file: Path, text: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests outside of the checkout, with the plugin that is under test."""
    file.write_text(text)
    plugin = ("-p", "tests.support.selection", "--noconftest", "-c", os.devnull, "--rootdir", str(file.parent))
    return run_tests(*plugin, *arguments, str(file), **variables)


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_last_lines_count_the_tests_left_out_by_need(tmp_path: Path, processes: str) -> None:
    ended = run_file(tmp_path / "test_them.py", LEAVING_OUT, "-n", processes)

    assert ended.returncode == 0
    lines = [line for line in ended.stdout.splitlines() if line]
    title, *counts, command = lines[-6:-1]
    assert "4 tests were left out" in title
    assert counts == [
        "Tests by what they need and this machine lacks:",
        "     3 a-program-that-no-machine-has",
        "     1 a terminal (/dev/pts)",
    ]
    assert re.search(r"this command installs what is missing: (sudo )?./scripts/install --programs$", command, re.I)
    assert "1 passed, 5 skipped" in lines[-1]


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_ci_run_that_leaves_out_a_test_fails(tmp_path: Path, processes: str) -> None:
    ended = run_file(tmp_path / "test_them.py", LEAVING_OUT, "-n", processes, CI="true")

    assert ended.returncode == 1
    assert "The variable CI is true, so the run ends with status 1." in ended.stdout


def test_a_ci_run_that_leaves_out_nothing_passes(tmp_path: Path) -> None:
    ended = run_file(tmp_path / "test_them.py", LEAVING_OUT, "-k", "skipped or passes", CI="true")

    assert ended.returncode == 0
    assert "left out" not in ended.stdout


def test_a_failure_is_one_whatever_was_left_out(tmp_path: Path) -> None:
    ended = run_file(tmp_path / "test_them.py", f"{LEAVING_OUT}\ndef test_that_fails(): assert False\n")

    assert ended.returncode == 1
    assert "4 tests were left out" in ended.stdout


@pytest.mark.parametrize("arguments", [["tests/serving"], ["tests/protocol", f"tests/{NOT_QUICK[0]}"], ["--all"]])
def test_quick_refuses_what_it_does_not_run(arguments: list[str]) -> None:
    ended = run_tests("--quick", *arguments)

    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: --quick does not run {arguments[-1]}" in ended.stderr or "exclude each other" in ended.stderr


def test_quick_says_what_it_left_out() -> None:
    ended = run_tests("--quick", "tests/protocol/test_pkce.py")

    files = [file for file in TESTS.rglob("test_*.py") if "node_modules" not in file.parts]
    left_out = [file for file in files if not is_quick(file)]
    assert ended.returncode == 0
    assert f"--quick left out {len(left_out)} of {len(files)} files of tests" in ended.stdout
    assert all((TESTS / name).exists() for name in (*QUICK_FOLDERS, *NOT_QUICK))


def test_quick_needs_the_packages_of_its_lock_only() -> None:
    """Follows the imports of its tests through all modules of the checkout."""
    lock = (CHECKOUT / "requirements-test.lock").read_text()
    locked = {name.replace("-", "_") for name in re.findall(r"^([a-z0-9.-]+)==", lock, re.MULTILINE)}
    distributions = importlib.metadata.packages_distributions()
    starts = (*TESTS.rglob("test_*.py"), *TESTS.rglob("conftest.py"))
    files = [TESTS / "conftest.py", *(file for file in starts if is_quick(file))]
    imported = {name for module in list_modules(files) for name in list_imports(module)}
    packages = {name.partition(".")[0] for name in imported if not list(find_modules(name))}

    assert {"pytest", "starlette"} <= packages
    for package in packages & distributions.keys():
        names = {re.sub("[-_.]+", "_", name).lower() for name in distributions[package]}
        assert names & locked, f"{package} is not in requirements-test.lock"


def list_modules(files: list[Path]) -> set[Path]:
    """Return these files of the checkout and all that they import, directly or not."""
    found, waiting = set(files), list(files)
    while waiting:
        for name in list_imports(waiting.pop()):
            new = set(find_modules(name)) - found
            found |= new
            waiting.extend(new)
    return found


def list_imports(file: Path) -> Iterator[str]:
    """Yield the full names that a file imports."""
    package = file.relative_to(CHECKOUT).parent.parts
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*start, *filter(None, [node.module])))
            yield from (f"{module}.{alias.name}" for alias in node.names)


def find_modules(name: str) -> Iterator[Path]:
    """Yield the files of the checkout that an import of this name runs. `tools/clauses.py` is also imported by path."""
    path = CHECKOUT.joinpath(*name.split("."))
    for folder in (path, *path.parents):
        if CHECKOUT in folder.parents:
            yield from (file for file in (folder.with_suffix(".py"), folder / "__init__.py") if file.exists())
