"""The languages of the pages. Each is a file of texts in templates/texts, whose name is the language tag.

A new file needs no code. All files are read and checked at startup: each has the texts of en.toml, with the same
placeholders.

Clauses: SPEC §4.1
"""

from __future__ import annotations

import re
import string
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from service.system.program_files import PROGRAM_FILES

TEMPLATES: Final = PROGRAM_FILES / "templates"
DEFAULT_LANGUAGE: Final = "en"
OTHER: Final = "other"
"""The form of a text for all counts that the other forms of the language do not cover."""

_MINUTE: Final = 60
_UNITS: Final = (("days", 24 * 60 * _MINUTE), ("hours", 60 * _MINUTE), ("minutes", _MINUTE), ("seconds", 1))
_TAG: Final = re.compile(r"[a-z]{2,3}(?:-[A-Z][a-z]{3})?(?:-(?:[A-Z]{2}|[0-9]{3}))?")


class BadTexts(Exception):
    """Files of texts have mistakes. Each is a line of the form `de.toml: what is wrong and what was expected`."""

    def __init__(self, mistakes: tuple[str, ...]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


class Language:
    """A language: its tag, and its texts by their keys.

    `plural` are the forms of a text with a count. Each has an expression that matches the digits of the counts that
    take this form. All other counts take the form `other`.
    """

    def __init__(self, tag: str, texts: Mapping[str, str], plural: Mapping[str, re.Pattern[str]]) -> None:
        self.tag = tag
        self.texts = texts
        self._plural = plural

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
        utc = moment.astimezone(UTC)
        parts = dict(zip(("year", "month", "day", "hour", "minute"), f"{utc:%Y %m %d %H %M}".split(), strict=True))
        return self.text("time.absolute", **parts)

    def count(self, key: str, count: int) -> Markup:
        """Return the text with this count, in the form that the language has for it."""
        form = next((form for form, counts in self._plural.items() if counts.fullmatch(str(count))), OTHER)
        return self.text(f"{key}_{form}", count=count)


@cache
def load_languages(folder: Path = TEMPLATES / "texts") -> Mapping[str, Language]:
    """Return all languages by their tags, English first. Raises BadTexts with every mistake in every file."""
    files = sorted(folder.glob("*.toml"), key=lambda file: (file.stem != DEFAULT_LANGUAGE, file.stem))
    languages: dict[str, Language] = {}
    mistakes: list[str] = []
    for file in files:
        try:
            language = _read_language(file)
        except ValueError as error:
            mistakes.append(f"{file.name}: {error}")
            continue
        languages[language.tag] = language
        default = languages.get(DEFAULT_LANGUAGE)
        mistakes += [f"{file.name}: {mistake}" for mistake in (_list_mistakes(language, default) if default else ())]
    if not mistakes and DEFAULT_LANGUAGE not in languages:
        mistakes.append(f"{DEFAULT_LANGUAGE}.toml: expected in {folder}, since all other files are compared with it")
    if mistakes:
        raise BadTexts(tuple(mistakes))
    return languages


def _read_language(file: Path) -> Language:
    """Read a file of texts. Raises ValueError with what was expected, unless it has the form of such a file."""
    if not _TAG.fullmatch(file.stem):
        raise ValueError(f"the name {file.stem!r} is no language tag; expected for example de or pt-BR")
    tables = tomllib.loads(file.read_text("utf-8"))
    if set(tables) != {"plural", "texts"}:
        raise ValueError(f"expected the tables plural and texts, found {', '.join(sorted(tables)) or 'nothing'}")
    try:
        plural = {form: re.compile(counts, re.ASCII) for form, counts in tables["plural"].items()}
    except (AttributeError, TypeError, re.error) as error:
        raise ValueError(f"plural: expected a regular expression of counts for each form ({error})") from None
    texts = dict(_flatten(tables["texts"]))
    odd = [key for key, text in texts.items() if not isinstance(text, str) or find_placeholders(text) is None]
    if odd:
        raise ValueError(f"{odd[0]}: expected a text whose placeholders are names in braces, such as {{count}}")
    return Language(file.stem, texts, plural)


def _flatten(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each text with its key: `[login] heading = …` is the text `login.heading`."""
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def find_placeholders(text: str) -> frozenset[str] | None:
    """Return the names of the placeholders in a text. Returns None if one is not a plain name.

    A placeholder with an attribute or an index could reach into a value.
    """
    try:
        fields = [field[1:] for field in string.Formatter().parse(text) if field[1] is not None]
    except ValueError:
        return None
    is_plain = all(name and name.isidentifier() and not form and not how for name, form, how in fields)
    return frozenset(str(name) for name, _, _ in fields) if is_plain else None


def _list_mistakes(language: Language, default: Language) -> Iterator[str]:
    """Yield how the language differs from the default one in its keys and placeholders."""
    expected = dict(_list_expected(language, default))
    for key in sorted(expected.keys() - language.texts.keys()):
        yield f"{key} is missing"
    for key in sorted(language.texts.keys() - expected.keys()):
        yield f"{key} is unknown: {DEFAULT_LANGUAGE}.toml has no such text, or plural no such form"
    for key in sorted(expected.keys() & language.texts.keys()):
        found, wanted = find_placeholders(language.texts[key]), find_placeholders(expected[key])
        if found != wanted:
            names = ", ".join(f"{{{name}}}" for name in sorted(wanted or ())) or "no placeholders"
            yield f"{key}: expected {names}, as in {DEFAULT_LANGUAGE}.toml"


def _list_expected(language: Language, default: Language) -> Iterator[tuple[str, str]]:
    """Yield the keys that the language must have, each with the English text of the same placeholders."""
    counted = {key.removesuffix(OTHER) for key in default.texts if key.endswith(f"_{OTHER}")}
    for key, text in default.texts.items():
        beginning, _, form = key.rpartition("_")
        if f"{beginning}_" not in counted:
            yield key, text
        elif form == OTHER:
            for each in (*language._plural, OTHER):
                yield f"{beginning}_{each}", text
