"""The answer that carries tokens, and the two headers that keep it out of caches.

Clauses: RFC 6749 §5.1, SPEC §2.1
"""

from __future__ import annotations

from typing import Final

import msgspec

NO_STORE_HEADERS: Final = {"Cache-Control": "no-store, no-cache", "Pragma": "no-cache"}


class TokenResponse(msgspec.Struct, frozen=True, kw_only=True):
    """All fields are always present; `expires_in` is in whole seconds, rounded down."""

    access_token: str
    token_type: str = "Bearer"
    expires_in: int
    refresh_token: str
    scope: str


class Lifetimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long what the service issues lives, in milliseconds; no `session_max_age_ms` means no end but idleness."""

    access_token_ms: int
    refresh_token_ms: int
    session_max_age_ms: int | None
    code_ms: int
    refresh_grace_ms: int
