"""The files of texts: each language has the same keys and placeholders, and a mistake ends the start."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from service.web.pages.languages import TEMPLATES, BadTexts, load_languages
from tests.support.servers import CHECKOUT

NOW = datetime(2026, 11, 21, 10, 4, tzinfo=UTC)
DAY_MS = 86_400_000
LANGUAGES = load_languages()


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A copy of the folder of texts."""
    return Path(shutil.copytree(TEMPLATES / "texts", tmp_path / "texts"))


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert text.count(old) == 1, old
    file.write_text(text.replace(old, new), "utf-8")


def test_german_tells_times_and_durations() -> None:
    german = LANGUAGES["de"]

    assert german.absolute(NOW) == "21.11.2026, 10:04 Uhr (UTC)"
    assert german.ago(NOW - timedelta(days=1), NOW) == "vor 1 Tag"
    assert german.ago(NOW - timedelta(minutes=5), NOW) == "vor 5 Minuten"
    assert german.lifetime(30 * DAY_MS, DAY_MS) == "Bis Sie den Zugriff beenden, aber höchstens 1 Tag"
    assert german.lifetime(30 * DAY_MS, None).endswith("30 Tage lang nicht genutzt wird")


def drop_key(file: Path) -> None:
    edit(file, 'now = "gerade eben"\n', "")


def rename_key(file: Path) -> None:
    edit(file, 'now = "gerade eben"', 'jetzt = "gerade eben"')


def rename_placeholder(file: Path) -> None:
    edit(file, "Angemeldet als {username}.", "Angemeldet als {benutzer}.")


BROKEN: list[tuple[Callable[[Path], None], str]] = [
    (drop_key, "de.toml: ago.now is missing"),
    (rename_key, "de.toml: ago.jetzt is unknown: en.toml has no such text"),
    (rename_placeholder, "de.toml: sessions.signed_in_as: expected {username}, as in en.toml"),
]


@pytest.mark.parametrize(("damage", "expected"), BROKEN)
def test_a_mistake_in_a_file_is_named(texts: Path, damage: Callable[[Path], None], expected: str) -> None:
    damage(texts / "de.toml")

    with pytest.raises(BadTexts) as refused:
        load_languages(texts)
    assert any(mistake.startswith(expected) for mistake in refused.value.mistakes), refused.value.mistakes


@pytest.mark.clause("decided-page-language-files")
def test_a_broken_file_ends_the_start_with_a_line_that_names_it(tmp_path: Path) -> None:
    """The checkout is copied as far as it is needed, since the files stand beside the code."""
    for folder in ("service", "templates", "examples"):
        shutil.copytree(CHECKOUT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    rename_placeholder(tmp_path / "templates" / "texts" / "de.toml")
    run = subprocess.run(
        [sys.executable, "-m", "service", "--port", "0"],
        cwd=tmp_path,
        env={"TOKEN_SERVICE_DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 2
    assert run.stderr.splitlines() == [
        "mistakes in the texts of the pages:",
        "de.toml: sessions.signed_in_as: expected {username}, as in en.toml",
    ]
