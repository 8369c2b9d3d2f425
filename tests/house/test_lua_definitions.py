"""The definitions that scripts of the store share: each stands alone, has a user, and is in front of its users only."""

import re
from pathlib import Path

from service.store.scripts import load_all_scripts, load_script
from tests.house.lua_headers import SHARED

DEFINITION = re.compile(r"^local (?:function )?(\w+(?:, \w+)*)", re.MULTILINE)
TEXTS = list(load_all_scripts().values())


def definitions_of(path: Path) -> list[str]:
    """Return the parts of the file that define something. A part ends before an empty line and unindented text."""
    return [text for text in re.split(r"\n\n(?=\S)", path.read_text()) if DEFINITION.search(text)]


def test_a_part_of_a_file_defines_one_function_or_constants_and_has_a_user() -> None:
    for text in (text for path in SHARED for text in definitions_of(path)):
        assert text.startswith(("-- ", "local ")), text
        assert len(re.findall(r"^local function ", text, re.MULTILINE)) <= 1, text
        assert any(text.strip("\n") in script for script in TEXTS), text


def test_a_script_has_only_the_definitions_that_it_uses() -> None:
    assert "local function" not in load_script("probe_store").text
    assert "spend" not in load_script("start_family").text
    text = load_script("mark_revoked").text
    assert "local function read_clock" in text
    assert "local function parse_family" not in text


def test_a_definition_stands_before_its_use() -> None:
    for text in TEXTS:
        for match in re.finditer(r"^local function (\w+)\(", text, re.MULTILINE):
            assert not re.findall(rf"(?<![.\w]){match[1]}\(", text[: match.start()]), match[1]
