"""The command `stats`, which counts live objects and the memory that they take."""

from __future__ import annotations

from typing import Any, Final

from service.admin.command import command, console
from service.admin.context import AdminContext
from service.admin.output import Output
from service.store.reports.key_statistics import Statistics

_OF_SESSIONS: Final = ("family", "access", "index")
"""The kinds of keys that a session takes. A user has one index, which lists all sessions of the user."""


@command(console, "stats")
async def stats(context: AdminContext, output: Output) -> None:
    """Count live objects and the memory that they take.

    The objects are sessions, access tokens, users and clients. Every key is counted, on every master. Memory is
    estimated from samples.
    """
    with output.progress("Counting keys") as advance:
        counts = await Statistics(context.redis).count_keys(advance)
    sessions = counts.keys.get("family", 0)
    taken = sum(counts.keys.get(kind, 0) * counts.mean_bytes.get(kind, 0.0) for kind in _OF_SESSIONS)
    memory = await context.redis.read_info("memory")
    facts: dict[str, Any] = {
        "store": context.store_name,
        "sessions": sessions,
        "access_tokens": counts.keys.get("access", 0),
        "users": counts.keys.get("user", 0),
        "clients": counts.keys.get("client", 0),
        "bytes_per_session": round(taken / sessions) if sessions else None,
        "used_memory": sum(server["used_memory"] for server in memory) or None,
        "memory_limit": sum(server["maxmemory"] for server in memory) or None,
        "masters": len(memory) or None,
    }
    output.facts(facts)
