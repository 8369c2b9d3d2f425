"""The tests that a run leaves out are counted, and `--quick` runs tests that need Python packages only."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.selection import NOT_QUICK
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
    plugins = ("-p", "xdist", "-p", "tests.support.selection")
    outside = ("--noconftest", "-c", os.devnull, "--rootdir", str(file.parent))
    # The imports of all installed plugins would take most of the time of three processes.
    return run_tests(*plugins, *outside, *arguments, str(file), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", **variables)


def test_summary_counts_omitted_tests_and_fails_in_ci(tmp_path: Path) -> None:
    ended = run_file(tmp_path / "test_them.py", LEAVING_OUT, "-n", "2", CI="true")

    assert ended.returncode == 1
    assert "4 tests were left out" in ended.stdout
    assert "     3 a-program-that-no-machine-has\n     1 a terminal (/dev/pts)\n" in ended.stdout
    assert "The variable CI is true, so the run ends with status 1." in ended.stdout


def test_quick_refuses_other_arguments() -> None:
    ended = run_tests("--quick", "tests/protocol", f"tests/{NOT_QUICK[0]}")

    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: --quick does not run tests/{NOT_QUICK[0]}" in ended.stderr
