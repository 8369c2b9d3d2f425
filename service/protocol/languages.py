"""The choice of a page's language by `ui_locales` and Accept-Language.

Clauses: RFC 4647 §3.4, RFC 9110 §12.5.4
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

MAX_LANGUAGES_CHARACTERS: Final = 1024
"""The most characters of a list of languages that are read. Browsers send a few dozen."""

_RANGE: Final = re.compile(r"([A-Za-z0-9-]+)(?:[ \t]*;[ \t]*[Qq]=([01](?:\.[0-9]{0,3})?))?")


def parse_ui_locales(text: str) -> Sequence[str]:
    """Return the language tags, which are separated by spaces, in order of preference."""
    return text[:MAX_LANGUAGES_CHARACTERS].split()


def parse_accept_language(header: str) -> Sequence[str]:
    """Return the wanted language ranges of Accept-Language, or of several such headers, joined by commas.

    The best range comes first. Ranges of the same quality keep their order. Malformed ranges are ignored, and so are
    those of quality 0 and `*`, which change nothing between a few languages.

    Clauses: RFC 9110 §12.5.4
    """
    parts = header[:MAX_LANGUAGES_CHARACTERS].split(",")
    found = [(float(match[2] or 1), match[1]) for part in parts if (match := _RANGE.fullmatch(part.strip()))]
    found.sort(key=lambda pair: pair[0], reverse=True)
    return [name for quality, name in found if quality > 0]


def find_language(wanted: Iterable[str], available: Sequence[str]) -> str | None:
    """Return the first wanted language that is available, or None.

    A range also fits a less specific tag: `de-AT` fits `de`. Upper case counts as lower case.

    Clauses: RFC 4647 §3.4
    """
    by_name = {tag.lower(): tag for tag in available}
    for tag in wanted:
        name = tag.lower()
        while name:
            if name in by_name:
                return by_name[name]
            name = name.rpartition("-")[0]
    return None
