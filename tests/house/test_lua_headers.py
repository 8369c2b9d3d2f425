"""The header of each Lua script agrees with its body and with its caller. tests/lua/scenarios.py runs each of them."""

import ast
import re

from service.redis_client.script import OWN_SCRIPTS, Script
from service.store.client import load_script
from tests.house.lua_headers import FIELDS, FILES, NAMES, OPTIONAL_FIELDS, read_script, returned_words
from tests.support.servers import CHECKOUT

SCRIPTS = [read_script(name) for name in NAMES]
STORE = CHECKOUT / "service" / "store"


def load(name: str) -> Script:
    return OWN_SCRIPTS.get(name) or load_script(str(FILES[name].relative_to(STORE).with_suffix("")))


def test_a_header_has_its_purpose_and_every_field_in_order() -> None:
    for script in SCRIPTS:
        assert script.purpose.endswith("."), script.name
        fields = [field for field in FIELDS if field not in OPTIONAL_FIELDS or field in script.fields]
        assert fields == list(script.fields), script.name


def test_a_script_reads_every_argument_of_its_header_and_no_index() -> None:
    for script in SCRIPTS:
        *_, arguments, argument_list = load(script.name)
        names = [name for name in (*arguments, argument_list) if name]
        assert [name for name in names if not re.search(rf"\b{name}\b", script.body)] == [], script.name
        assert not re.search(r"\b(?:KEYS|ARGV)\b", script.body), script.name


def test_the_header_lists_exactly_the_words_that_are_returned() -> None:
    assert [script.name for script in SCRIPTS if script.words != returned_words(script)] == []


def test_a_call_passes_exactly_the_names_of_the_header() -> None:
    called = []
    for path in (CHECKOUT / "service").rglob("*.py"):
        text = path.read_text()
        constants = dict(
            re.findall(r'^(\w+): Final = (?:load_script\(|OWN_SCRIPTS\[)"(?:\w+/)?(\w+)"', text, re.MULTILINE)
        )
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call) and call.args and getattr(call.args[0], "id", "") in constants:
                name = constants[call.args[0].id]  # type: ignore[attr-defined]
                *_, keys, key_list, arguments, argument_list = load(name)
                expected = {each for each in (*keys, key_list, *arguments, argument_list) if each}
                assert {keyword.arg for keyword in call.keywords} == expected, f"{path.name}: {name}"
                called.append(name)

    assert sorted(set(called)) == NAMES


def test_a_script_is_loaded_once_and_beside_it() -> None:
    for name in NAMES:
        folder = FILES[name].relative_to(CHECKOUT / "service").parts[0]
        callers = [path.read_text() for path in (STORE if folder == "store" else FILES[name].parents[1]).rglob("*.py")]
        loads = re.findall(rf'(?:load_script\(|OWN_SCRIPTS\[)"(?:\w+/)?{name}"', "\n".join(callers))
        assert len(loads) == 1, name
