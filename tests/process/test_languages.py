"""The files of texts: every language has the same keys and placeholders, and a mistake ends the start."""

from __future__ import annotations

import shutil
import string
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from service.web.pages.languages import TEMPLATES, BadTexts, Language, find_placeholders, load_languages
from tests.support.servers import CHECKOUT

NOW = datetime(2026, 11, 21, 10, 4, tzinfo=UTC)
DAY_MS = 86_400_000
LANGUAGES = load_languages()

RUSSIAN = {"one": "(|.*[02-9])1", "few": "(|.*[02-9])[2-4]"}
"""Forms of a language that has more of them: 1 and 21, but not 11; 2 to 4 and 22, but not 12."""


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A copy of the folder of texts."""
    return Path(shutil.copytree(TEMPLATES / "texts", tmp_path / "texts"))


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert text.count(old) == 1, old
    file.write_text(text.replace(old, new), "utf-8")


def test_there_are_english_and_german_and_english_is_first() -> None:
    assert next(iter(LANGUAGES)) == "en"
    assert {"en", "de"} <= set(LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_all_languages_have_the_same_keys_and_placeholders(language: Language) -> None:
    """The loader compares them. This test does so by its own means, for languages with the forms of English."""
    english = LANGUAGES["en"].texts

    assert set(language.texts) == set(english)
    for key, text in language.texts.items():
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
        wanted = {name for _, name, _, _ in string.Formatter().parse(english[key]) if name is not None}
        assert (set(names), len(names)) == (wanted, len(wanted)), key
        assert all(name.isidentifier() for name in names), key


@pytest.mark.parametrize("tag", sorted(set(LANGUAGES) - {"en"}))
def test_no_sentence_was_left_in_english(tag: str) -> None:
    english = LANGUAGES["en"].texts
    same = {key for key, text in LANGUAGES[tag].texts.items() if text == english[key] and " " in text}

    assert same == {"page.title"}


def test_german_has_the_quotation_marks_and_the_form_of_address_of_german() -> None:
    for key, text in LANGUAGES["de"].texts.items():
        assert '"' not in text, key
        assert "“" not in text or "„" in text, key
        assert "..." not in text, key
        assert not {"du", "dir", "dich", "dein", "deine"} & set(text.lower().split()), key


def test_german_tells_times_and_durations() -> None:
    german = LANGUAGES["de"]

    assert german.absolute(NOW) == "21.11.2026, 10:04 Uhr (UTC)"
    assert german.ago(NOW - timedelta(days=1), NOW) == "vor 1 Tag"
    assert german.ago(NOW - timedelta(minutes=5), NOW) == "vor 5 Minuten"
    assert german.lifetime(30 * DAY_MS, DAY_MS) == "Bis Sie den Zugriff beenden, aber höchstens 1 Tag"
    assert german.lifetime(30 * DAY_MS, None).endswith("30 Tage lang nicht genutzt wird")


@pytest.mark.clause("decided-page-language-files")
def test_a_new_file_is_a_new_language(texts: Path) -> None:
    shutil.copy(texts / "de.toml", texts / "pt-BR.toml")
    edit(texts / "pt-BR.toml", 'now = "gerade eben"', 'now = "agora mesmo"')

    assert list(load_languages(texts)) == ["en", "de", "pt-BR"]
    assert load_languages(texts)["pt-BR"].ago(NOW, NOW) == "agora mesmo"


def test_a_language_may_have_other_forms_of_a_text_with_a_count(texts: Path) -> None:
    few = [
        f'{key.partition(".")[2].removesuffix("other")}few = "few {{count}}"'
        for key in LANGUAGES["de"].texts
        if key.startswith("ago.") and key.endswith("_other")
    ]
    file = texts / "ru.toml"
    shutil.copy(texts / "de.toml", file)
    edit(
        file,
        '[plural]\none = "1"',
        "[plural]\n" + "\n".join(f"{form} = '{counts}'" for form, counts in RUSSIAN.items()),
    )
    edit(file, "[texts.ago]", "[texts.ago]\n" + "\n".join(few))
    with pytest.raises(BadTexts) as refused:
        load_languages(texts)
    assert set(refused.value.mistakes) == {
        f"ru.toml: {key.removesuffix('other')}few is missing"
        for key in LANGUAGES["de"].texts
        if key.endswith("_other") and not key.startswith("ago.")
    }
    for key in (mistake.split()[1] for mistake in refused.value.mistakes):
        table, _, name = key.partition(".")
        edit(file, f"[texts.{table}]", f'[texts.{table}]\n{name} = "few {{count}}"')
    russian = load_languages(texts)["ru"]

    ages = {count: russian.ago(NOW - timedelta(days=count), NOW) for count in (1, 2, 4, 5, 11, 12, 21, 22, 112, 121)}
    assert {count for count, age in ages.items() if age.startswith("few")} == {2, 4, 22}
    assert {count for count, age in ages.items() if age.endswith("Tag")} == {1, 21, 121}
    assert {count for count, age in ages.items() if age.endswith("Tagen")} == {5, 11, 12, 112}


def drop_key(file: Path) -> None:
    edit(file, 'now = "gerade eben"\n', "")


def rename_key(file: Path) -> None:
    edit(file, 'now = "gerade eben"', 'jetzt = "gerade eben"')


def rename_placeholder(file: Path) -> None:
    edit(file, "Angemeldet als {username}.", "Angemeldet als {benutzer}.")


def reach_into_a_value(file: Path) -> None:
    edit(file, "Angemeldet als {username}.", "Angemeldet als {username.__class__}.")


def leave_a_brace_open(file: Path) -> None:
    edit(file, "Angemeldet als {username}.", "Angemeldet als {username.")


def leave_a_quote_open(file: Path) -> None:
    edit(file, 'now = "gerade eben"', 'now = "gerade eben')


def write_a_number(file: Path) -> None:
    edit(file, 'now = "gerade eben"', "now = 1")


def drop_the_plural(file: Path) -> None:
    edit(file, '[plural]\none = "1"', "")


def break_the_plural(file: Path) -> None:
    edit(file, 'one = "1"', 'one = "("')


def write_latin_1(file: Path) -> None:
    file.write_bytes(file.read_text("utf-8").encode("latin-1", "ignore"))


BROKEN: list[tuple[Callable[[Path], None], str]] = [
    (drop_key, "de.toml: ago.now is missing"),
    (rename_key, "de.toml: ago.jetzt is unknown: en.toml has no such text, or plural no such form"),
    (rename_placeholder, "de.toml: sessions.signed_in_as: expected {username}, as in en.toml"),
    (reach_into_a_value, "de.toml: sessions.signed_in_as: expected a text whose placeholders are names in braces"),
    (leave_a_brace_open, "de.toml: sessions.signed_in_as: expected a text whose placeholders are names in braces"),
    (leave_a_quote_open, "de.toml: Illegal character"),
    (write_a_number, "de.toml: ago.now: expected a text"),
    (drop_the_plural, "de.toml: expected the tables plural and texts, found texts"),
    (break_the_plural, "de.toml: plural: expected a regular expression of counts for each form"),
    (write_latin_1, "de.toml: 'utf-8' codec can't decode"),
]


@pytest.mark.parametrize(("damage", "expected"), BROKEN)
def test_a_mistake_in_a_file_is_named(texts: Path, damage: Callable[[Path], None], expected: str) -> None:
    damage(texts / "de.toml")

    with pytest.raises(BadTexts) as refused:
        load_languages(texts)
    assert any(mistake.startswith(expected) for mistake in refused.value.mistakes), refused.value.mistakes


def test_all_mistakes_of_all_files_are_named_at_once(texts: Path) -> None:
    drop_key(texts / "de.toml")
    (texts / "Deutsch.toml").write_text("")
    (texts / "fr.toml").write_text("")

    with pytest.raises(BadTexts) as refused:
        load_languages(texts)
    assert [mistake.partition(":")[0] for mistake in refused.value.mistakes] == ["Deutsch.toml", "de.toml", "fr.toml"]


def test_a_folder_without_english_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTexts, match=r"en\.toml: expected in"):
        load_languages(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", set()), ("{a} {b}", {"a", "b"}), ("{{a}}", set()), ("{a}{a}", {"a"})]
    + [(text, None) for text in ("{}", "{0}", "{a.b}", "{a[0]}", "{a!r}", "{a:>9}", "{", "}", "{a")],
)
def test_placeholders_are_plain_names(text: str, expected: set[str] | None) -> None:
    """A placeholder has no attribute and no index, which could reach into a value."""
    assert find_placeholders(text) == expected


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
