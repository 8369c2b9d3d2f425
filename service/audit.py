"""Security events: one structured log line each, under stable names; never a token, code, secret or password."""

from __future__ import annotations

from typing import Literal

import structlog

Event = Literal["refresh_token_replayed", "replay_pattern", "lost_generations_recovered", "code_replayed"]

_log = structlog.get_logger("service.audit")


def record_event(event: Event, *, client_id: str, username: str, family: str, address: str) -> None:
    """`family` is the digest under which Redis knows the family; it cannot be presented."""
    _log.warning(event, client_id=client_id, username=username, family=family, address=address)
