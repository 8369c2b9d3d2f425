"""Loading of the store's Lua scripts. Each file is one change of state; `lua/records.lua` is prepended to each."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from service.redis_client.script import OWN_SCRIPTS, Script, list_scripts, read_script

_FOLDER: Final = files("service.store") / "lua"
_RECORDS: Final = "records"


def load_script(name: str) -> Script:
    """Return the script of `lua/<name>.lua`, ready for EVALSHA."""
    return read_script(_FOLDER, name, (_FOLDER / f"{_RECORDS}.lua").read_text())


def load_all_scripts() -> dict[str, str]:
    """Return the texts of all scripts by SHA-1, including those of the Redis client."""
    scripts = [load_script(name) for name in list_scripts(_FOLDER) if name != _RECORDS]
    return {script.sha1: script.text for script in (*OWN_SCRIPTS.values(), *scripts)}
