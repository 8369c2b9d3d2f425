"""docs/settings.md says of each setting what the code says."""

from tools.settings_reference import MANUAL, make_manual


def test_the_manual_has_the_tables_that_the_code_makes() -> None:
    text = MANUAL.read_text()
    assert text == make_manual(text), "docs/settings.md is stale; ./scripts/settings-reference writes it anew"
