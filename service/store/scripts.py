"""The Lua scripts, one transition a file; `lua/records.lua` stands in front of each."""

from __future__ import annotations

import functools
import hashlib
from importlib.resources import files
from typing import Final, NamedTuple

_FOLDER: Final = files("service.store") / "lua"
_RECORDS: Final = "records"


class Script(NamedTuple):
    """`derives_keys`: its header names keys that it makes out of others, so that Redis cannot look where they lie."""

    name: str
    text: str
    sha1: str
    derives_keys: bool


@functools.cache
def load_all_scripts() -> dict[str, str]:
    """Return the texts of all scripts by their SHA-1."""
    names = sorted(file.name.removesuffix(".lua") for file in _FOLDER.iterdir() if file.name.endswith(".lua"))
    scripts = [load_script(name) for name in names if name != _RECORDS]
    return {script.sha1: script.text for script in scripts}


def load_script(name: str) -> Script:
    """The script of `lua/<name>.lua`, ready for EVALSHA."""
    records, body = ((_FOLDER / f"{part}.lua").read_text() for part in (_RECORDS, name))
    text = f"{records}\n{body}"
    sha1 = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(name, text, sha1, "\n-- DERIVED " in body)
