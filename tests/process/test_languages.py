"""The files of texts: each language has the same keys and placeholders."""

from __future__ import annotations

import string

import pytest

from service.web.pages.languages import load_languages

LANGUAGES = load_languages()


def list_placeholders(text: str) -> set[str | None]:
    return {name for _, name, _, _ in string.Formatter().parse(text)} - {None}


@pytest.mark.clause("decided-page-language-files")
def test_each_language_has_the_same_texts_and_placeholders() -> None:
    english = {key: list_placeholders(text) for key, text in LANGUAGES["en"].texts.items()}

    for language in LANGUAGES.values():
        assert {key: list_placeholders(text) for key, text in language.texts.items()} == english
