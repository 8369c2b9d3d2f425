"""The tests that a run leaves out are counted, and `--quick` runs tests that need Python packages only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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
