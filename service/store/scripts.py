"""Loading of the store's Lua scripts. Each file of `lua` is one change of state; `lua/shared` has what they share."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from service.redis_client.script import Script, read_script

_FOLDER: Final = Path(__file__).with_name("lua")
_SHARED: Final = ("records", "families", "spent_generations", "pages")
"""The files of `lua/shared`. Each uses only what it defines itself, or what a file before it defines."""

_FLAGS: Final = "--!df flags=allow-undeclared-keys"
"""Permits a script on Dragonfly to derive keys. Other servers ignore this comment."""

_NAMES: Final = re.compile(r"^local (?:function )?(\w+(?:, \w+)*)", re.MULTILINE)
_WORD: Final = re.compile(r"\w+")
_END: Final = re.compile(r"\n\n(?=\S)")
"""The end of a definition: an empty line, before text without indentation."""


class _Definition(NamedTuple):
    names: frozenset[str]
    text: str


def load_script(name: str) -> Script:
    """Return the script of `lua/<name>.lua`, ready for EVALSHA.

    The shared definitions that it uses are in front of it. Redis runs a definition at each call of the script, so
    unused ones would cost time.
    """
    used = set(_WORD.findall((_FOLDER / f"{name}.lua").read_text()))
    chosen: list[str] = []
    for definition in reversed(_read_definitions()):
        if definition.names & used:
            used.update(_WORD.findall(definition.text))
            chosen.append(definition.text)
    return read_script(_FOLDER, name, "\n\n".join([_FLAGS, *reversed(chosen)]))


@cache
def _read_definitions() -> tuple[_Definition, ...]:
    """Return the definitions of the shared files, in order."""
    texts = [text for name in _SHARED for text in _END.split((_FOLDER / "shared" / f"{name}.lua").read_text())]
    return tuple(
        _Definition(frozenset(name for names in _NAMES.findall(text) for name in names.split(", ")), text.strip("\n"))
        for text in texts
    )
