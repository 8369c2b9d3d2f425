"""`doctor` says until when the Python project fixes vulnerabilities of the interpreter's series."""

from __future__ import annotations

import re
import tomllib
from datetime import UTC, datetime

import pytest

from service.admin.checks import LAST_MONTHS, look_at_interpreter
from tests.support.servers import CHECKOUT

Version = tuple[int, int, int]


def read_level(version: Version, year: int, month: int, day: int, hour: int = 0) -> str:
    now = datetime(year, month, day, hour, tzinfo=UTC)
    return look_at_interpreter(version, round(now.timestamp() * 1000)).level


def test_the_oldest_python_that_is_supported_has_an_end() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    oldest, *_ = sorted(LAST_MONTHS)

    assert project["requires-python"] == ">={}.{}".format(*oldest)


def test_each_series_ends_five_years_after_its_first_release() -> None:
    """PEP 602: a series begins in each October, and has five years of releases."""
    assert {minor: months for (_, minor), months in LAST_MONTHS.items()} == {
        minor: (2022 + (minor - 11) + 5, 10) for _, minor in LAST_MONTHS
    }


def test_the_manual_has_the_same_ends() -> None:
    manual = (CHECKOUT / "docs" / "operations" / "deploy.md").read_text()
    rows = re.findall(r"^\| 3\.(\d+) \| October (\d{4}) \|", manual, re.MULTILINE)

    assert {(3, int(minor)): (int(year), 10) for minor, year in rows} == LAST_MONTHS


@pytest.mark.parametrize("version", [(3, 11, 2), (3, 11, 17)])
def test_a_series_is_good_until_its_last_month_is_over(version: Version) -> None:
    """Debian's 3.11.2 has the fixes of later releases, so the number of the release does not count."""
    assert read_level(version, 2026, 11, 25) == "good"
    assert read_level(version, 2027, 10, 31, 23) == "good"
    assert read_level(version, 2027, 11, 1) == "warning"
    assert read_level((3, 13, 5), 2027, 11, 1) == "good"


def test_the_end_of_a_series_is_named() -> None:
    finding = look_at_interpreter((3, 11, 2), round(datetime(2028, 1, 1, tzinfo=UTC).timestamp() * 1000))

    assert finding.says.startswith(
        "3.11.2, whose series has security releases of the Python project until 2027-10 only"
    )


def test_a_newer_python_than_those_known_is_good() -> None:
    assert read_level((3, 99, 0), 2027, 1, 1) == "good"
