"""Lua scripts, one per file, ready for EVALSHA. The header of a file is the signature of its script."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).with_name("lua")
_FIELD: Final = re.compile(r"^-- (KEYS|ARGV) +(.*(?:\n--  .*)*)", re.MULTILINE)
_REMARK: Final = re.compile(r"\([^)]*\)|^-- ", re.MULTILINE)
_CONVERSIONS: Final = {"": "{}", "number": "tonumber({})", "json": "cjson.decode({})"}

Argument = str | int | Sequence[str | int]


class Script(NamedTuple):
    """A script with its SHA-1, and the names of its keys and arguments.

    `derives_keys` means that it makes names of keys from other names. Redis cannot check in which slots such keys lie.
    `key_list` and `argument_list` name a list of any length behind the other keys or arguments, or are empty.
    """

    name: str
    text: str
    sha1: str
    derives_keys: bool
    keys: tuple[str, ...]
    key_list: str
    arguments: tuple[str, ...]
    argument_list: str

    def bind(self, values: Mapping[str, Argument]) -> tuple[list[str], list[str | int]]:
        """Return the keys and the arguments in the order of the header. Raises KeyError if one is missing."""
        keys, arguments = [*map(values.__getitem__, self.keys)], [*map(values.__getitem__, self.arguments)]
        if self.key_list:
            keys += values[self.key_list]  # type: ignore[arg-type]
        if self.argument_list:
            arguments += values[self.argument_list]  # type: ignore[arg-type]
        return keys, arguments  # type: ignore[return-value]


Run = Callable[..., Awaitable[list[str | int]]]
"""A function that runs a script with the values of its keys and arguments, by the names of the header."""


def read_script(path: Path, prelude: str = "") -> Script:
    """Return the script of the file, with the prelude in front of it.

    KEYS and ARGV of the header name the locals that the body uses; each is bound before the body. `name:number` and
    `name:json` are converted. A name with `…` is a list of all values from there on. Text in brackets is a remark. A
    header line that begins with `-- DERIVED` marks a script that derives keys.
    """
    body = path.read_text("utf-8")
    derives_keys = "\n-- DERIVED " in body
    named = {source: _REMARK.sub("", names).replace(",", " ").split() for source, names in _FIELD.findall(body)}
    # The guard key follows the keys of a script that derives keys, and the clock offset follows the arguments.
    bindings = [*_bind("KEYS", named["KEYS"], int(derives_keys)), *_bind("ARGV", named["ARGV"], 1)]
    text = "\n".join([*([prelude] if prelude else []), *bindings, body])
    sha1 = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(path.stem, text, sha1, derives_keys, *_split(named["KEYS"]), *_split(named["ARGV"]))


def _bind(source: str, names: Sequence[str], last: int) -> list[str]:
    """Return a Lua statement for each name. The `last` values of the source are not bound."""
    return [
        f"local {name[:-1]} = {{ unpack({source}, {position}, #{source} - {last}) }}"
        if name.endswith("…")
        else f"local {name.partition(':')[0]} = {_CONVERSIONS[name.partition(':')[2]].format(f'{source}[{position}]')}"
        for position, name in enumerate(names, 1)
    ]


def _split(names: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the plain names, and the name of the list behind them or an empty text."""
    plain = [name.partition(":")[0] for name in names]
    return (tuple(plain[:-1]), plain[-1][:-1]) if plain and plain[-1].endswith("…") else (tuple(plain), "")


OWN_SCRIPTS: Final = {name: read_script(_FOLDER / f"{name}.lua") for name in ("keep_lock", "leave_fence")}
"""The scripts of this package by name, for the lock and the fence."""
