"""The header of each Lua script agrees with its body, and each script has its caller and its tests."""

import re

from tests.house.lua_headers import FIELDS, FILES, NAMES, OPTIONAL_FIELDS, read_script, returned_words
from tests.support.servers import CHECKOUT

SCRIPTS = [read_script(name) for name in NAMES]


def test_a_header_has_its_purpose_and_every_field_in_order() -> None:
    for script in SCRIPTS:
        fields = script.header.fields
        assert script.header.purpose.endswith("."), script.name
        assert [field for field in FIELDS if field not in OPTIONAL_FIELDS or field in fields] == list(fields), (
            script.name
        )


def test_the_header_names_exactly_the_bound_keys_and_arguments() -> None:
    for script in SCRIPTS:
        for field in ("KEYS", "ARGV"):
            positions = sorted(binding.position for binding in script.bindings if binding.source == field)
            assert list(range(1, len(positions) + 1)) == positions, script.name
            assert script.header.names(field) == script.bound(field), script.name


def test_positions_appear_only_in_the_bindings() -> None:
    assert [script.name for script in SCRIPTS if re.search(r"\b(?:KEYS|ARGV)\b", script.body)] == []


def test_the_header_lists_exactly_the_words_that_are_returned() -> None:
    assert [script.name for script in SCRIPTS if script.header.words != returned_words(script)] == []


def test_a_script_has_a_test_file_and_is_loaded_in_one_place() -> None:
    code = "\n".join(path.read_text() for path in (CHECKOUT / "service").rglob("*.py"))
    for name in NAMES:
        assert (CHECKOUT / "tests" / FILES[name].parent.parent.name / f"test_{name}.py").is_file(), name
        assert len(re.findall(rf'(?:load_script\(|OWN_SCRIPTS\[)"{name}"', code)) == 1, name
