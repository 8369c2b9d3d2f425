"""The languages of the pages, English and German. Each is a file of texts in templates/texts.

Both files have the same keys, with the same placeholders.

Clauses: SPEC §4.1
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final

from markupsafe import Markup

from service.system.program_files import PROGRAM_FILES

TEMPLATES: Final = PROGRAM_FILES / "templates"
DEFAULT_LANGUAGE: Final = "en"
TAGS: Final = (DEFAULT_LANGUAGE, "de")

_MINUTE: Final = 60
_UNITS: Final = (("days", 24 * 60 * _MINUTE), ("hours", 60 * _MINUTE), ("minutes", _MINUTE), ("seconds", 1))


@dataclass(frozen=True)
class Language:
    """A language: its tag, and its texts by their keys. A text with a count has two forms, `one` and `other`."""

    tag: str
    texts: Mapping[str, str]

    def text(self, key: str, **values: object) -> Markup:
        """Return a text with its values filled in, ready for HTML. The text is trusted; the values are escaped."""
        return Markup(self.texts[key]).format(**values)

    def duration(self, milliseconds: int) -> Markup:
        """Return a duration in the largest unit that leaves no remainder: 36 hours, but 2 days."""
        seconds = max(milliseconds // 1000, 1)
        unit, length = next((unit, length) for unit, length in _UNITS if seconds % length == 0)
        return self.count(f"duration.{unit}", seconds // length)

    def lifetime(self, idle_ms: int, most_ms: int | None) -> Markup:
        """Return how long a session lasts: until it was idle for `idle_ms`, and at most for `most_ms`.

        If `most_ms` is None, the age of the session is not limited.
        """
        if most_ms is None:
            return self.text("lifetime.idle", idle=self.duration(idle_ms))
        if most_ms <= idle_ms:
            return self.text("lifetime.most", most=self.duration(most_ms))
        return self.text("lifetime.idle_and_most", idle=self.duration(idle_ms), most=self.duration(most_ms))

    def ago(self, then: datetime, now: datetime) -> Markup:
        """Return the time between two moments in the largest unit that fits: 47 hours are one day ago."""
        seconds = int((now - then).total_seconds())
        if seconds < _MINUTE:
            return self.text("ago.now")
        unit, length = next((unit, length) for unit, length in _UNITS if seconds >= length)
        return self.count(f"ago.{unit}", seconds // length)

    def absolute(self, moment: datetime) -> Markup:
        return self.text("time.absolute", moment=moment.astimezone(UTC))

    def count(self, key: str, count: int) -> Markup:
        """Return the text with this count."""
        form = "one" if count == 1 else "other"
        return self.text(f"{key}_{form}", count=count)


@cache
def load_languages() -> Mapping[str, Language]:
    """Return all languages by their tags, English first."""
    return {tag: Language(tag, _read_texts(TEMPLATES / "texts" / f"{tag}.toml")) for tag in TAGS}


def _read_texts(file: Path) -> dict[str, str]:
    """Return each text by its key: `[texts.login] heading = …` is the text `login.heading`."""
    tables = tomllib.loads(file.read_text("utf-8"))["texts"]
    return {f"{table}.{name}": text for table, texts in tables.items() for name, text in texts.items()}
