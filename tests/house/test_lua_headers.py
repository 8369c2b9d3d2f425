"""The header of each Lua script agrees with its body, and each script has its caller and its tests."""

import re

import pytest

from tests.house.lua_headers import FIELDS, FILES, NAMES, built_kinds, read_script, returned_words
from tests.support.servers import CHECKOUT

pytestmark = pytest.mark.parametrize("name", NAMES)


def test_a_header_has_its_purpose_and_every_field_in_order(name: str) -> None:
    header = read_script(name).header

    assert header.purpose.endswith(".")
    assert [field for field in FIELDS if field != "DERIVED" or field in header.fields] == list(header.fields)


@pytest.mark.parametrize("field", ["KEYS", "ARGV"])
def test_the_header_names_exactly_what_is_bound(name: str, field: str) -> None:
    script = read_script(name)
    positions = sorted(binding.position for binding in script.bindings if binding.source == field)

    assert list(range(1, len(positions) + 1)) == positions
    assert script.header.names(field) == script.bound(field)


def test_below_the_bindings_no_position_appears(name: str) -> None:
    assert not re.findall(r"\b(?:KEYS|ARGV)\b", read_script(name).body)


def test_every_bound_name_is_used(name: str) -> None:
    """A declared key counts as used: Redis Cluster routes by it, and its text may be built again from a record."""
    script = read_script(name)
    unused = [
        binding.name
        for binding in script.bindings
        if binding.source == "ARGV" and not re.search(rf"\b{binding.name}\b", script.body)
    ]

    assert not unused


def test_no_script_has_a_shebang(name: str) -> None:
    assert "#!" not in read_script(name).text


def test_the_header_lists_exactly_the_words_that_are_returned(name: str) -> None:
    script = read_script(name)

    assert script.header.words == returned_words(script)


def test_the_header_lists_the_kinds_of_keys_that_are_built(name: str) -> None:
    script = read_script(name)
    declared = {key.removesuffix("_key") for key in script.header.names("KEYS")}
    built = built_kinds(script)

    assert built - declared <= script.header.derived <= built


def test_a_script_has_tests_of_its_own(name: str) -> None:
    folder = FILES[name].parent.parent.name

    assert (CHECKOUT / "tests" / folder / f"test_{name}.py").is_file()


def test_a_script_is_loaded_in_one_place(name: str) -> None:
    loads = [
        path.name
        for path in (CHECKOUT / "service").rglob("*.py")
        for _ in re.findall(rf'(?:load_script\(|OWN_SCRIPTS\[)"{name}"', path.read_text())
    ]

    assert len(loads) == 1
