"""The definitions that scripts of the store share: each stands alone, has a user, and is in front of its users only."""

import re
from pathlib import Path

import pytest

from service.store.scripts import load_all_scripts, load_script
from tests.house.lua_headers import SHARED

DEFINITION = re.compile(r"^local (?:function )?(\w+(?:, \w+)*)", re.MULTILINE)
TEXTS = list(load_all_scripts().values())


def definitions_of(path: Path) -> list[str]:
    """Return the parts of the file that define something. A part ends before an empty line and unindented text."""
    return [text for text in re.split(r"\n\n(?=\S)", path.read_text()) if DEFINITION.search(text)]


@pytest.mark.parametrize("path", SHARED, ids=lambda path: path.stem)
def test_a_part_of_a_file_defines_one_function_or_constants(path: Path) -> None:
    for text in definitions_of(path):
        assert text.startswith(("-- ", "local ")), text
        assert len(re.findall(r"^local function ", text, re.MULTILINE)) <= 1, text


@pytest.mark.parametrize("path", SHARED, ids=lambda path: path.stem)
def test_every_definition_has_a_user(path: Path) -> None:
    for text in definitions_of(path):
        assert any(text.strip("\n") in script for script in TEXTS), text


def test_a_script_has_only_the_definitions_that_it_uses() -> None:
    assert "local function" not in load_script("probe_store").text
    assert "spend" not in load_script("start_family").text
    text = load_script("mark_revoked").text
    assert "local function read_clock" in text
    assert "local function parse_family" not in text


@pytest.mark.parametrize("text", TEXTS)
def test_a_definition_is_used_after_it_stands(text: str) -> None:
    for match in re.finditer(r"^local function (\w+)\(", text, re.MULTILINE):
        calls = re.findall(rf"(?<![.\w]){match[1]}\(", text[: match.start()])
        assert not calls, match[1]
