"""The tables of docs/settings.md, made of the fields of Settings; `./scripts/settings-reference` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from service.config.reading import Setting
from service.config.settings import SETTINGS
from tests.support.servers import CHECKOUT

MANUAL = CHECKOUT / "docs" / "settings.md"
PLACE = re.compile(
    r"(?P<begin><!-- settings: (?P<table>[^(]+) \(made by ./scripts/settings-reference\) -->\n)"
    r"[^<]*(?P<end><!-- end of settings -->)"
)

# No parser takes all of these: nothing in it, and a file that is no folder, no picture and no number.
WRONG = ("\n", __file__)


def make_manual(text: str) -> str:
    """The manual with each of its tables as the code has it now."""
    return PLACE.sub(lambda place: place["begin"] + make_table(place["table"]) + place["end"], text)


def tables_of(text: str) -> list[str]:
    return [place["table"] for place in PLACE.finditer(text)]


def make_table(table: str) -> str:
    return "".join(f"{line}\n" for line in _make_lines(table))


def _make_lines(table: str) -> Iterator[str]:
    yield "| variable | default | meaning | a bad one: expected … |"
    yield "| --- | --- | --- | --- |"
    for setting in SETTINGS.values():
        if setting.table == table:
            yield f"| `{setting.variable}` | {_tell_default(setting)} | {setting.meaning} | {_tell_expected(setting)} |"


def _tell_default(setting: Setting) -> str:
    return setting.default_text or f"`{setting.default}`"


def _tell_expected(setting: Setting) -> str:
    """In the parser's own words."""
    for text in WRONG:
        try:
            setting.parse(text)
        except ValueError as expected:
            return str(expected)
    raise AssertionError(f"the parser of {setting.variable} takes anything")


if __name__ == "__main__":
    MANUAL.write_text(make_manual(MANUAL.read_text()))
