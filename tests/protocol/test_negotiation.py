"""What a caller prefers: media types, and languages by ui_locales and Accept-Language."""

from collections.abc import Callable, Sequence

import pytest

from service.protocol.negotiation import MAX_PREFERENCES_CHARACTERS, find_language, parse_preferences, parse_ui_locales

AVAILABLE = ("en", "de", "pt-BR")


@pytest.mark.clause("decided-page-language")
@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("fr, pt, de-AT", "de"),
        ("fr,de;q=0.5,en;q=0.8", "en"),
        ("de;q=0.5,en;q=0.5", "de"),
        ("*, de;q=0", None),
        ("*;q=0.5,de", "de"),
        # A malformed range is ignored, and the others are read.
        ("de;q=2,deutschland,en", "en"),
        ("de ; q = 0.9", None),
        ("fr-FR, de_DE;q=0.9", "de"),
    ],
)
def test_accept_language_chooses_by_quality_then_by_order(header: str, expected: str | None) -> None:
    assert find_language(parse_preferences(header), AVAILABLE) == expected


@pytest.mark.clause("decided-page-language")
@pytest.mark.parametrize(
    ("text", "expected"), [("fr  de-CH", "de"), ("PT-br de", "pt-BR"), ("pt_BR", "pt-BR"), ("de_DE", "de"), ("*", None)]
)
def test_ui_locales_choose_by_order(text: str, expected: str | None) -> None:
    assert find_language(parse_ui_locales(text), AVAILABLE) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("text/html, Application/JSON", ["text/html", "application/json"]),
        ("text/html;q=0.5;level=1, application/json;charset=utf-8;q=0.6", ["application/json"]),
        ("application/json ; level=1 ;Q=0.9, text/html;level=2", ["text/html", "application/json"]),
        ("application/json;q=0, */*;q=0.0, text/html;q=.2, text/html;q=1.", ["text/html"]),
        ("a" + ";  " * 300 + "q=9", []),
    ],
    ids=lambda value: str(value)[:20],
)
def test_media_types_are_sorted_by_quality(header: str, expected: list[str]) -> None:
    assert parse_preferences(header) == expected


@pytest.mark.parametrize(("parse", "separator"), [(parse_preferences, ","), (parse_ui_locales, " ")])
def test_text_beyond_the_bound_is_ignored(parse: Callable[[str], Sequence[str]], separator: str) -> None:
    long_text = "x" * (MAX_PREFERENCES_CHARACTERS - 3)

    assert find_language(parse(f"{long_text}{separator}de"), AVAILABLE) == "de"
    assert find_language(parse(f"{long_text}x{separator}de"), AVAILABLE) is None
