"""The rules for a new password, wherever one is set: a seed, the console, or the page of sessions.

The list of the commonest passwords is read at the first use. The library that has it is not imported, because its
other tables take 7 MiB. Its list lacks what only repeats up to four characters, and what only counts; both are refused
by rule. Each common word or name is in one of its lists only, so the beginning of each list is taken.

Clauses: RFC 6819 §5.1.4.1.3
"""

from __future__ import annotations

import functools
import re
import runpy
from importlib.metadata import distribution
from typing import Final, Literal

from service.crypto.password_hashing import normalize_password
from service.protocol.grammar import is_unicode_without_line_ends
from service.protocol.user import MAX_PASSWORD_CHARACTERS, normalize_username

PasswordMistake = Literal["not_text", "too_short", "too_long", "common", "own_name"]

COMMONEST: Final = 10_000
_REPEATED: Final = re.compile(r"(.{1,4}?)\1+")
_COUNTS: Final = "01234567890123456789 98765432109876543210 abcdefghijklmnopqrstuvwxyz zyxwvutsrqponmlkjihgfedcba"


def find_password_mistake(password: str, min_characters: int, *names: str) -> PasswordMistake | None:
    """Return what is wrong with a new password, or None. `names` are the user's own name, address and shown name."""
    if not is_unicode_without_line_ends(password):
        return "not_text"
    if len(password) > MAX_PASSWORD_CHARACTERS:
        return "too_long"
    if len(normalize_password(password)) < min_characters:
        return "too_short"
    folded = _fold(password)
    if folded in {_fold(part) for name in names for part in (name, name.rpartition("@")[0]) if part}:
        return "own_name"
    is_common = folded in _COUNTS or _REPEATED.fullmatch(folded) or f"\n{folded}\n" in _load_commonest()
    return "common" if is_common else None


def _fold(text: str) -> str:
    return normalize_username(text).casefold()


@functools.cache
def _load_commonest() -> str:
    """Return the commonest passwords, words and names, one per line. As one text they take 0.4 MiB."""
    lists = runpy.run_path(str(distribution("zxcvbn").locate_file("zxcvbn/frequency_lists.py")))["FREQUENCY_LISTS"]
    return "\n".join(["", *(word for words in lists.values() for word in words[:COMMONEST]), ""])
