"""The lifetimes of tokens, codes and sessions: those of the settings, and those of a client that has its own.

Clauses: RFC 6749 §4.1.2, §5.1, §10.4
"""

from __future__ import annotations

import msgspec

from .client import Client


class Lifetimes(msgspec.Struct, frozen=True, kw_only=True):
    """The lifetimes of tokens, codes and sessions, in milliseconds.

    If `session_max_age_ms` is None, a session expires only when it is idle. A user who has `sessions_per_user` sessions
    loses the one with the oldest login at the next login.
    """

    access_token_ms: int
    refresh_token_ms: int
    session_max_age_ms: int | None
    code_ms: int
    refresh_grace_ms: int
    sessions_per_user: int

    def of(self, client: Client) -> Lifetimes:
        """Return the lifetimes for this client: its own, and these where it has none."""
        own = (client.access_token_ttl, client.refresh_token_ttl, client.session_max_age, client.refresh_grace)
        if own == (None, None, None, None):  # the usual case of a refresh; the lines below take six times as long
            return self
        names = ("access_token_ms", "refresh_token_ms", "session_max_age_ms", "refresh_grace_ms")
        given = {name: round(1000 * seconds) for name, seconds in zip(names, own, strict=True) if seconds is not None}
        return msgspec.structs.replace(self, **given)
