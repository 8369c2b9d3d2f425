"""The files of texts: each language has the same keys and placeholders."""

from __future__ import annotations

import string
from datetime import UTC, datetime, timedelta

import pytest

from service.web.pages.languages import load_languages

NOW = datetime(2026, 11, 21, 10, 4, tzinfo=UTC)
DAY_MS = 86_400_000
LANGUAGES = load_languages()


def list_placeholders(text: str) -> set[str | None]:
    return {name for _, name, _, _ in string.Formatter().parse(text)} - {None}


def test_german_tells_times_and_durations() -> None:
    german = LANGUAGES["de"]

    assert german.absolute(NOW) == "21.11.2026, 10:04 Uhr (UTC)"
    assert german.ago(NOW - timedelta(days=1), NOW) == "vor 1 Tag"
    assert german.ago(NOW - timedelta(minutes=5), NOW) == "vor 5 Minuten"
    assert german.lifetime(30 * DAY_MS, DAY_MS) == "Bis Sie den Zugriff beenden, aber höchstens 1 Tag"
    assert german.lifetime(30 * DAY_MS, None).endswith("30 Tage lang nicht genutzt wird")


@pytest.mark.clause("decided-page-language-files")
def test_each_language_has_the_same_texts_and_placeholders() -> None:
    english = {key: list_placeholders(text) for key, text in LANGUAGES["en"].texts.items()}

    for language in LANGUAGES.values():
        assert {key: list_placeholders(text) for key, text in language.texts.items()} == english
