"""The choice of a page's language by `ui_locales` and Accept-Language.

Clauses: RFC 4647 §3.4, RFC 9110 §12.5.4
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

MAX_LANGUAGES_CHARACTERS: Final = 1024
MAX_LANGUAGE_RANGES: Final = 20
"""The bounds for a list of languages. What is beyond either bound is ignored. Browsers send a few ranges."""

ANY_LANGUAGE: Final = "*"

_RANGE: Final = re.compile(
    r"[ \t]*(\*|[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*)[ \t]*"
    r"(?:;[ \t]*[Qq][ \t]*=[ \t]*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)[ \t]*)?"
)


class LanguageWish(NamedTuple):
    """The languages that a person prefers.

    `wanted` are language ranges such as `de-AT`, the best first. `refused` are the ranges with a quality of 0. All are
    in lower case. `*` stands for every language that no other range names.
    """

    wanted: Sequence[str]
    refused: Collection[str] = ()


def parse_ui_locales(text: str) -> LanguageWish:
    """Parse language tags that are separated by spaces, in order of preference. Malformed tags are ignored."""
    tags = text[:MAX_LANGUAGES_CHARACTERS].lower().split(" ", MAX_LANGUAGE_RANGES)[:MAX_LANGUAGE_RANGES]
    return LanguageWish([tag for tag in tags if (match := _RANGE.fullmatch(tag)) and match[1] == tag != ANY_LANGUAGE])


def parse_accept_language(header: str) -> LanguageWish:
    """Parse the value of Accept-Language, or of several such headers, joined by commas. Malformed ranges are ignored.

    Ranges of the same quality keep their order.

    Clauses: RFC 9110 §12.5.4
    """
    parts = header[:MAX_LANGUAGES_CHARACTERS].lower().split(",", MAX_LANGUAGE_RANGES)[:MAX_LANGUAGE_RANGES]
    matches = [match for match in map(_RANGE.fullmatch, parts) if match]
    found = [(match[1], float(match[2] or 1)) for match in matches]
    found.sort(key=lambda pair: pair[1], reverse=True)
    return LanguageWish(
        [name for name, quality in found if quality > 0], {name for name, quality in found if quality == 0}
    )


def find_language(wish: LanguageWish, available: Sequence[str]) -> str | None:
    """Return the language tag that fits best, or None. The first of `available` is the default language.

    A range also fits a less specific tag: `de-AT` fits `de`.

    Clauses: RFC 4647 §3.4
    """
    by_name = {tag.lower(): tag for tag in available if tag.lower() not in wish.refused}
    for wanted in wish.wanted:
        if wanted == ANY_LANGUAGE:
            unnamed = [tag for name, tag in by_name.items() if name not in wish.wanted]
            if unnamed:
                return unnamed[0]
        name = wanted
        while name:
            if name in by_name:
                return by_name[name]
            name = name.rpartition("-")[0]
    return None
