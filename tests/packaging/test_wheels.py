"""All wheels: equal in each build of a commit, with a description."""

from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.packaging.metadata import read_metadata
from tools.wheels import GATEWAY, ROOT, TESTING, build_wheel


@pytest.mark.parametrize("project", [ROOT, GATEWAY, TESTING], ids=["service", "gateway", "testing"])
def test_two_builds_are_equal_and_described(project: Path, tmp_path: Path) -> None:
    first, second = (build_wheel(project, tmp_path / name) for name in ("first", "second"))

    with ZipFile(first) as files:
        assert {each.date_time for each in files.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert first.read_bytes() == second.read_bytes()
    assert str(read_metadata(first).get_payload()).strip() == (project / "README.md").read_text().strip()
