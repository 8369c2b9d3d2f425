"""The refusals of a release, and what it changes in a repository. ./scripts/release itself also builds."""

from pathlib import Path

import pytest

from service import __version__
from tests.support.servers import CHECKOUT
from tools.release import FILES, Refused, check_changelog, check_tree, release, run, set_version

NOTES = "# Changelog\n\n## [Unreleased]\n\n### Upgrade notes\n\n- Restart.\n\n## [0.9.0] - 2026-01-01\n\n- Old.\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with the files that name a version, and a changelog."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('__version__ = "0.9.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(NOTES)
    run(tmp_path, "git", "init", "--quiet")
    run(tmp_path, "git", "config", "user.name", "Test")
    run(tmp_path, "git", "config", "user.email", "test@example.com")
    commit(tmp_path)
    return tmp_path


def commit(repository: Path) -> None:
    run(repository, "git", "add", ".")
    run(repository, "git", "commit", "--quiet", "--message", "Change")


def test_changed_file_is_refused(repository: Path) -> None:
    check_tree(repository)
    (repository / "new").touch()

    with pytest.raises(Refused, match="new"):
        check_tree(repository)


def test_open_note_is_refused_with_its_line(repository: Path) -> None:
    (repository / "new.py").write_text("pass\n# " + "xTODO"[1:] + ": write this\n")  # no open note in this file
    commit(repository)

    with pytest.raises(Refused, match=r"new\.py:2:"):
        check_tree(repository)


@pytest.mark.parametrize(
    ("section", "message"), [("", "lists no change"), ("### Changed\n\n- It is new.\n\n", "Upgrade notes")]
)
def test_changelog_without_notes_is_refused(repository: Path, section: str, message: str) -> None:
    check_changelog(repository, "1.0.0")
    (repository / "CHANGELOG.md").write_text(NOTES.replace("### Upgrade notes\n\n- Restart.\n\n", section))

    with pytest.raises(Refused, match=message):
        check_changelog(repository, "1.0.0")


def test_final_version_is_set_everywhere_and_committed(repository: Path) -> None:
    set_version(repository, "1.0.0rc1")
    assert (repository / "CHANGELOG.md").read_text() == NOTES

    set_version(repository, "1.0.0")
    check_tree(repository)
    check_changelog(repository, "1.0.0")
    assert {(repository / name).read_text() for name in FILES} == {'__version__ = "1.0.0"\n'}
    assert "## [Unreleased]\n\n## [1.0.0] - 20" in (repository / "CHANGELOG.md").read_text()


def test_each_file_of_the_checkout_names_the_version() -> None:
    assert [name for name in FILES if __version__ not in (CHECKOUT / name).read_text()] == []


def test_file_with_another_version_is_refused(repository: Path) -> None:
    (repository / FILES[1]).write_text("0.8.0\n")

    with pytest.raises(Refused, match=FILES[1]):
        set_version(repository, "1.0.0")


def test_malformed_version_is_refused(repository: Path) -> None:
    with pytest.raises(Refused, match=r"expected a version like 1\.0\.0"):
        release(repository, "1.0")
