"""The tables of docs/settings.md, made from the fields of Settings. `./scripts/settings-reference` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from service.config.reading import Setting
from service.config.settings import SETTINGS
from tests.support.servers import CHECKOUT

MANUAL = CHECKOUT / "docs" / "settings.md"
TABLE = re.compile(
    r"(?P<begin><!-- settings: (?P<table>[^(]+) \(made by ./scripts/settings-reference\) -->\n)"
    r"[^<]*(?P<end><!-- end of settings -->)"
)

# Every parser refuses at least one of these texts: a blank one, and the path of a file that is no folder or image.
INVALID_TEXTS = ("\n", __file__)


def make_manual(text: str) -> str:
    """Return the text of the manual with its tables replaced by current ones."""
    return TABLE.sub(lambda match: match["begin"] + make_table(match["table"]) + match["end"], text)


def find_tables(text: str) -> list[str]:
    return [match["table"] for match in TABLE.finditer(text)]


def make_table(table: str) -> str:
    return "".join(f"{line}\n" for line in _make_lines(table))


def _make_lines(table: str) -> Iterator[str]:
    yield "| variable | default | meaning | expected value |"
    yield "| --- | --- | --- | --- |"
    for setting in SETTINGS.values():
        if setting.table == table:
            default, expected = _describe_default(setting), _describe_expected(setting)
            yield f"| `{setting.variable}` | {default} | {setting.meaning} | {expected} |"


def _describe_default(setting: Setting) -> str:
    return setting.default_text or f"`{setting.default}`"


def _describe_expected(setting: Setting) -> str:
    """Return the message with which the parser refuses an invalid value."""
    for text in INVALID_TEXTS:
        try:
            setting.parse(text)
        except ValueError as error:
            return str(error)
    raise AssertionError(f"the parser of {setting.variable} accepts every text")


if __name__ == "__main__":
    MANUAL.write_text(make_manual(MANUAL.read_text()))
