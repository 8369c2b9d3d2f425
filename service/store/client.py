"""The Redis client of the store, set up with the store's fence key and probe keys, and the loading of its scripts.

Each `.lua` file with the header of a script is one change of state, and lies beside the Python file that calls it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from service.gateway.access_record import PROBE_KEYS
from service.redis_client.client import RedisClient
from service.redis_client.script import Script, read_script
from service.store.keys import fence_key

_FOLDER: Final = Path(__file__).parent

_FLAGS: Final = "--!df flags=allow-undeclared-keys"
"""Permits a script on Dragonfly to derive keys. Other servers ignore this comment."""

_USES: Final = re.compile(r"^-- USES +(.+)$", re.MULTILINE)


class StoreClient(RedisClient):
    """The Redis client for all commands and scripts of the store. RedisClient documents the parameters."""

    fence_key = staticmethod(fence_key)
    probe_keys = PROBE_KEYS


def load_script(name: str) -> Script:
    """Return the script `<name>.lua` of this package, such as `sessions/end_family`, ready for EVALSHA.

    The files that its header names under USES are put in front of it. Each uses only files that are named before it.
    """
    uses = _USES.search((_FOLDER / f"{name}.lua").read_text("utf-8"))
    shared = [(_FOLDER / f"{each}.lua").read_text("utf-8") for each in (uses[1].split() if uses else ())]
    return read_script(_FOLDER / f"{name}.lua", "\n".join([_FLAGS, *shared]))
