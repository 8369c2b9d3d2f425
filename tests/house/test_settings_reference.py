"""The tables of docs/reference/settings.md list each setting with its default."""

import re

from service.config.settings import SETTINGS
from tests.support.servers import CHECKOUT


def test_the_manual_lists_each_setting_with_its_default() -> None:
    text = (CHECKOUT / "docs" / "reference" / "settings.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| `[A-Z_]+` \|", line)]
    told = {name.strip("`"): default for name, default, _ in rows}
    defaults = {setting.variable: setting.default for setting in SETTINGS.values()}

    assert told.keys() == defaults.keys()
    plain = {name: default for name, default in defaults.items() if isinstance(default, str)}
    assert not {name for name, default in plain.items() if default and f"`{default}`" not in told[name]}
