"""Lua scripts, one per file, ready for EVALSHA."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).with_name("lua")


class Script(NamedTuple):
    """A script with its SHA-1.

    `derives_keys` means that it makes names of keys from other names. Redis cannot check in which slots such keys lie.
    """

    name: str
    text: str
    sha1: str
    derives_keys: bool


Run = Callable[[Script, Sequence[str], Sequence[str | int]], Awaitable[list[str | int]]]


def read_script(folder: Path, name: str, prelude: str = "") -> Script:
    """Return the script of `<name>.lua` in the folder, with the prelude in front of it.

    A header line that begins with `-- DERIVED` marks a script that derives keys.
    """
    body = (folder / f"{name}.lua").read_text("utf-8")
    text = f"{prelude}\n{body}" if prelude else body
    sha1 = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(name, text, sha1, "\n-- DERIVED " in body)


OWN_SCRIPTS: Final = {name: read_script(_FOLDER, name) for name in ("keep_lock", "leave_fence")}
"""The scripts of this package by name, for the lock and the fence."""
