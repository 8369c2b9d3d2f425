"""docs/settings.md says of each setting what the code says."""

from service.config.settings import SETTINGS
from tools.settings_reference import MANUAL, find_tables, make_manual


def test_the_manual_has_the_tables_that_the_code_makes() -> None:
    text = MANUAL.read_text()
    assert text == make_manual(text), "docs/settings.md is stale; ./scripts/settings-reference writes it anew"


def test_every_setting_stands_in_a_table_of_the_manual() -> None:
    tables = find_tables(MANUAL.read_text())
    assert len(tables) == len(set(tables))
    assert {setting.table for setting in SETTINGS.values()} == set(tables)


def test_each_variable_belongs_to_one_setting() -> None:
    variables = [setting.variable for setting in SETTINGS.values()]
    assert len(variables) == len(set(variables))
