"""Each word that the code can meet has an answer: the verdicts of scripts, and the words of a Literal in its tables."""

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_args

from service.protocol.verdicts import CODE_REFUSALS, REFRESH_REFUSALS, SUCCESS_EVENTS
from service.store.browsers.consents import AllowAnswer, DenyAnswer
from tests.house.lua_headers import read_script
from tests.support.servers import CHECKOUT

ANSWERED = {
    "spend_refresh_token": {*SUCCESS_EVENTS, *REFRESH_REFUSALS},
    "redeem_authorization_code": {"redeemed", *CODE_REFUSALS},
    "allow_consent": {*get_args(AllowAnswer)},
    "deny_consent": {*get_args(DenyAnswer)},
}


def test_every_verdict_of_a_script_has_an_answer() -> None:
    assert {name: read_script(name).words for name in ANSWERED} == ANSWERED


def find_tables() -> Iterator[tuple[str, set[Any], set[Any]]]:
    """Yield the name, the keys and the words of each table that is annotated with a Literal as the type of its keys."""
    for path in (CHECKOUT / "service").rglob("*.py"):
        for name, key in re.findall(r"^(\w+): Final\[dict\[(\w+), ", path.read_text(), re.MULTILINE):
            module = import_module(".".join(path.relative_to(CHECKOUT).with_suffix("").parts))
            words = get_args(vars(module).get(key))
            if words:
                yield f"{path.name}: {name}", set(vars(module)[name]), set(words)


def test_a_table_has_every_word_of_the_literal_that_is_its_key() -> None:
    tables = list(find_tables())

    assert len(tables) > 5
    assert [name for name, keys, words in tables if keys != words] == []
