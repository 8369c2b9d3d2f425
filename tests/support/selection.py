"""A plugin of pytest: the tests of `--quick`, and the last lines of a run, which say what it left out.

`--quick` runs tests that need Python packages only and take less than a minute together. With the variable `CI=true` a
run ends with status 1 if this machine lacks what a test needs.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.support.left_out import PREFIX

TESTS = Path(__file__).resolve().parent.parent
QUICK_FOLDERS = ("crypto", "house", "protocol", "spec", "store")
NOT_QUICK = (
    "crypto/test_foreign_hashes.py",
    "spec/test_openapi.py",
    "store/test_revocations.py",
    "store/test_spent_generations.py",
)
"""Files of these folders that need packages beyond requirements-test.lock, or take longest."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="run only tests that need Python packages only, on one server"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--quick"):
        return
    if config.getoption("--all"):
        raise pytest.UsageError("--quick and --all exclude each other")
    config.option.topology = config.option.topology or "single"
    for argument in config.args:
        path = Path(config.invocation_params.dir, argument.partition("::")[0]).resolve()
        if not is_quick(path):
            raise pytest.UsageError(f"--quick does not run {argument}, which needs more: ./scripts/test {argument}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--quick") and not is_quick(collection_path) else None


def is_quick(path: Path) -> bool:
    """Return True for a file or folder with tests of `--quick`, and for the folders that contain all tests."""
    if path == TESTS or path in TESTS.parents:
        return True
    if TESTS not in path.parents:
        return False
    name = path.relative_to(TESTS)
    return name.parts[0] in QUICK_FOLDERS and name.as_posix() not in NOT_QUICK


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK and _is_ci() and _count_left_out(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--quick"):
        _report_quick(terminalreporter)
    if needs := _count_left_out(config):
        _report_left_out(
            terminalreporter, needs, "--all-programs" if config.getoption("--all", default=False) else "--programs"
        )


def _report_quick(reporter: pytest.TerminalReporter) -> None:
    reporter.section("--quick left out most tests")
    reporter.line(f"It ran those of tests/{{{','.join(QUICK_FOLDERS)}}}, except {', '.join(NOT_QUICK)}.")


def _report_left_out(reporter: pytest.TerminalReporter, needs: Counter[str], programs: str) -> None:
    number = sum(needs.values())
    reporter.section(f"{number} tests were left out" if number > 1 else "1 test was left out", yellow=True)
    reporter.line("Tests by what they need and this machine lacks:")
    for need, count in needs.most_common():
        reporter.line(f"{count:6} {need}")
    reporter.line(f"This command installs what is missing, on Debian as root: ./scripts/install {programs}")
    if _is_ci():
        reporter.line("The variable CI is true, so the run ends with status 1.")


def _count_left_out(config: pytest.Config) -> Counter[str]:
    """Return the number of tests that were left out by what they need. A worker of xdist counts none."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", ()) if reporter else ()
    reasons = (report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    return Counter(reason.removeprefix(PREFIX) for reason in reasons if reason.startswith(PREFIX))


def _is_ci() -> bool:
    return os.environ.get("CI") == "true"
