"""The Lua scripts, one transition a file; `lua/records.lua` stands in front of each."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final, NamedTuple

_FOLDER: Final = files("service.store") / "lua"
_RECORDS: Final = "records"


class Script(NamedTuple):
    name: str
    text: str
    sha1: str


def load_script(name: str) -> Script:
    """The script of `lua/<name>.lua`, ready for EVALSHA."""
    records, body = ((_FOLDER / f"{part}.lua").read_text() for part in (_RECORDS, name))
    text = f"{records}\n{body}"
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
