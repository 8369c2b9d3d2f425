"""The tables of docs/settings.md, made from the fields of Settings. `./scripts/settings-reference` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from service.config.settings import SETTINGS
from tests.support.servers import CHECKOUT

MANUAL = CHECKOUT / "docs" / "settings.md"
TABLE = re.compile(
    r"(?P<begin><!-- settings: (?P<table>[^(]+) \(made by ./scripts/settings-reference\) -->\n)"
    r"[^<]*(?P<end><!-- end of settings -->)"
)


def make_manual(text: str) -> str:
    """Return the text of the manual with its tables replaced by current ones."""
    return TABLE.sub(lambda match: match["begin"] + make_table(match["table"]) + match["end"], text)


def make_table(table: str) -> str:
    return "".join(f"{line}\n" for line in _make_lines(table))


def _make_lines(table: str) -> Iterator[str]:
    yield "| variable | default | meaning |"
    yield "| --- | --- | --- |"
    for setting in SETTINGS.values():
        if setting.table == table:
            yield f"| `{setting.variable}` | {setting.default_text or f'`{setting.default}`'} | {setting.meaning} |"


if __name__ == "__main__":
    MANUAL.write_text(make_manual(MANUAL.read_text()))
