"""The files of texts: each language has the same keys and placeholders, and exactly the texts that the pages use."""

import ast
import re
import string
from collections.abc import Iterator
from itertools import product
from typing import get_args

import pytest

from service.crypto.password_rules import PasswordMistake
from service.protocol.scope import ROLES
from service.web.pages.cookies import Notice
from service.web.pages.languages import TEMPLATES, load_languages
from service.web.pages.page import ErrorKind
from service.web.pages.steps import LoginRefusal
from tests.support.servers import CHECKOUT

LANGUAGES = load_languages()

VALUES = {
    "form": ("one", "other"),
    "key": (),  # in the method that adds the form to a key
    "kind": get_args(ErrorKind),
    "mistake": {*get_args(PasswordMistake)} - {"too_short", "too_long"},
    "name": ("current", "new", "repeated"),
    "notice": get_args(Notice),
    "page": ("login", "password"),
    "refusal": get_args(LoginRefusal),
    "role": ROLES,
    "unit": ("seconds", "minutes", "hours", "days"),
}
"""The values of each variable in a key."""


def list_placeholders(text: str) -> set[str | None]:
    return {name for _, name, _, _ in string.Formatter().parse(text)} - {None}


def expand(pattern: str) -> Iterator[str]:
    """Yield the keys that a pattern such as role.{role}_detail stands for."""
    names = sorted(name for name in list_placeholders(pattern) if name)
    for values in product(*(VALUES[name] for name in names)):
        yield pattern.format(**dict(zip(names, values, strict=True)))


def find_patterns() -> Iterator[str]:
    """Yield the first argument of each call of `text` and `count` in pages and templates, variables in braces."""
    for path in (CHECKOUT / "service" / "web" / "pages").glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(call.func).rpartition(".")[2] if isinstance(call, ast.Call) else ""
            if isinstance(call, ast.Call) and name in ("text", "count") and not isinstance(call.args[0], ast.Name):
                yield ast.unparse(call.args[0]).lstrip("f").strip("'") + ("_{form}" if name == "count" else "")
    for path in TEMPLATES.glob("*.html"):
        for argument in re.findall(r"text\((.*?)[,)]", path.read_text()):
            for choice in re.split(" if .* else ", argument):
                yield "".join(part.strip('"') if '"' in part else f"{{{part}}}" for part in choice.split(" ~ "))


@pytest.mark.clause("decided-page-language-files")
def test_each_language_has_the_same_texts_and_placeholders() -> None:
    english = {key: list_placeholders(text) for key, text in LANGUAGES["en"].texts.items()}

    for language in LANGUAGES.values():
        assert {key: list_placeholders(text) for key, text in language.texts.items()} == english


def test_the_pages_use_exactly_the_texts_that_there_are() -> None:
    used = {key for pattern in find_patterns() for key in expand(pattern)}

    assert used - {*expand("ago.seconds_{form}")} == LANGUAGES["en"].texts.keys()  # less than a minute is "just now"
