"""The tables of docs/settings.md list each setting with its default and the values that its parser expects."""

from __future__ import annotations

import re

from service.config.reading import Setting
from service.config.settings import SETTINGS
from tests.support.servers import CHECKOUT

# Every parser refuses at least one of these texts: a blank one, and the path of a file that is no folder or image.
INVALID_TEXTS = ("\n", __file__)


def describe_expected(setting: Setting) -> str:
    """Return the message with which the parser refuses an invalid value."""
    for text in INVALID_TEXTS:
        try:
            setting.parse(text)
        except ValueError as error:
            return str(error)
    raise AssertionError(f"the parser of {setting.variable} accepts every text")


def test_the_manual_lists_each_setting_with_its_default_and_its_values() -> None:
    text = (CHECKOUT / "docs" / "settings.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| `[A-Z_]+` \|", line)]
    told = {name.strip("`"): (default, expected) for name, default, _, expected in rows}
    settings = {setting.variable: setting for setting in SETTINGS.values()}

    assert told.keys() == settings.keys()
    assert {name: expected for name, (_, expected) in told.items()} == {
        name: describe_expected(setting) for name, setting in settings.items()
    }
    plain = {name: setting.default for name, setting in settings.items() if isinstance(setting.default, str)}
    assert not {name for name, default in plain.items() if default and f"`{default}`" not in told[name][0]}
