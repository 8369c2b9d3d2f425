"""Loading of the store's Lua scripts. Each file of `lua` is one change of state; `lua/shared` has what they share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from service.redis_client.script import Script, read_script

_FOLDER: Final = Path(__file__).with_name("lua")

_FLAGS: Final = "--!df flags=allow-undeclared-keys"
"""Permits a script on Dragonfly to derive keys. Other servers ignore this comment."""

_USES: Final = re.compile(r"^-- USES +(.+)$", re.MULTILINE)


def load_script(name: str) -> Script:
    """Return the script of `lua/<name>.lua`, ready for EVALSHA.

    The files of `lua/shared` that its header names are in front of it. Each uses only files that are named before it.
    """
    uses = _USES.search((_FOLDER / f"{name}.lua").read_text("utf-8"))
    shared = [(_FOLDER / "shared" / f"{each}.lua").read_text("utf-8") for each in (uses[1].split() if uses else ())]
    return read_script(_FOLDER, name, "\n".join([_FLAGS, *shared]))
