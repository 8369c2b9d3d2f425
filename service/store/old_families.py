"""Families that version 0.2.0 of the service wrote last, see lua/shared/old_families.lua."""

from __future__ import annotations

import re
from typing import Final

_DIGEST_WIDTH: Final = 22
_GENERATION_AT: Final = _DIGEST_WIDTH + 13
_ENTRY_WIDTH: Final = _GENERATION_AT + 8
_NUMBERED: Final = re.compile(r"[as]\d+")


def convert_old_family(field: dict[str, str]) -> dict[str, str]:
    """Return the fields as this version writes them. Raises ValueError or LookupError if the record is broken."""
    created_ms, expires_in_ms, access_in_ms = field["t"].split(" ")
    grant_type, secret_used, provider = field["g"].split("\n", 2)
    stale_below, stale_since_grant_ms = field["o"].split(":")
    kept_in_ms = max(int(expires_in_ms), int(access_in_ms))
    stale_in_ms = int(stale_since_grant_ms) - int(access_in_ms)

    def convert_entry(text: str) -> str:
        ms, generation = int(text[_DIGEST_WIDTH:_GENERATION_AT]), int(text[_GENERATION_AT:_ENTRY_WIDTH], 16)
        return f"{text[:_DIGEST_WIDTH]}{ms - int(created_ms)}:{generation}"

    has_provider = provider != "\n\n"
    entries = {name: text for name, text in field.items() if _NUMBERED.fullmatch(name)}
    replayed = [field["p"][at : at + _ENTRY_WIDTH] for at in range(0, len(field["p"]), _ENTRY_WIDTH)]
    return {
        "v": f"{field['v']} {created_ms} {kept_in_ms} {grant_type} {secret_used} {int(has_provider)} {field['s']}",
        "h": f"{field['h']} {expires_in_ms} {access_in_ms} {field['f']} {stale_below} {stale_in_ms}",
        **{name: field[name] for name in ("c", "u", "r", "k", "n") if name in field},
        **({"g": provider} if has_provider else {}),
        **{f"p{number}": convert_entry(text) for number, text in enumerate(replayed)},
        **{name: convert_entry(text) if name.startswith("a") else text for name, text in entries.items()},
    }
