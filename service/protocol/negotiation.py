"""What a caller prefers: media types by Accept, and a page's language by `ui_locales` and Accept-Language.

Clauses: RFC 4647 §3.4, RFC 9110 §12.4.2, §12.5.1, §12.5.4
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

MAX_PREFERENCES_CHARACTERS: Final = 1024
"""The most characters of a list that are read. Browsers send up to two hundred."""

_RANGE: Final = re.compile(r"([^\s;]+)[ \t]*(?:;(?![ \t]*q[ \t]*=)[^;]*)*(?:;[ \t]*q=([01](?:\.[0-9]{0,3})?))?")


def parse_ui_locales(text: str) -> Sequence[str]:
    """Return the language tags, which are separated by spaces, in order of preference."""
    return text[:MAX_PREFERENCES_CHARACTERS].split()


def parse_preferences(header: str) -> Sequence[str]:
    """Return the ranges of Accept or Accept-Language, in lower case. Several such headers are joined by commas.

    The best range comes first. Ranges of the same quality keep their order. Malformed ranges and those of quality 0 are
    ignored. Other parameters than the quality are dropped.

    Clauses: RFC 9110 §12.4.2, §12.5.1, §12.5.4
    """
    parts = header[:MAX_PREFERENCES_CHARACTERS].lower().split(",")
    found = [(float(match[2] or 1), match[1]) for part in parts if (match := _RANGE.fullmatch(part.strip()))]
    found.sort(key=lambda pair: pair[0], reverse=True)
    return [name for quality, name in found if quality > 0]


def find_language(wanted: Iterable[str], available: Sequence[str]) -> str | None:
    """Return the first wanted language that is available, or None.

    A range also fits a less specific tag: `de-AT` fits `de`. Upper case counts as lower case, and `_` as `-`, since
    Java writes `de_AT`.

    Clauses: RFC 4647 §3.4
    """
    by_name = {tag.lower(): tag for tag in available}
    for tag in wanted:
        name = tag.lower().replace("_", "-")
        while name:
            if name in by_name:
                return by_name[name]
            name = name.rpartition("-")[0]
    return None
