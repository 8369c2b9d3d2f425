"""The command `stats`, which counts live objects and the memory that they take."""

from __future__ import annotations

from typing import Any

from service.admin.command import command, console
from service.admin.context import AdminContext
from service.admin.output import Output, format_bytes, list_facts
from service.store.reports.key_statistics import count_keys


@command(console, "stats", examples=("stats", "stats --json"))
async def stats(context: AdminContext, output: Output) -> None:
    """Count live objects and the memory that they take.

    The objects are sessions, access tokens, users and clients. Every key is counted, on every master. Memory is
    estimated from samples.
    """
    with output.progress("Counting keys") as advance:
        counts, mean_bytes = await count_keys(context.redis, advance)
    sessions = counts["family"]
    # A session has these kinds of keys. A user has one index, which lists all sessions of the user.
    taken = sum(counts[kind] * mean_bytes.get(kind, 0.0) for kind in ("family", "access", "index"))
    memory = await context.redis.read_info("memory")
    facts: dict[str, Any] = {
        "store": context.settings.store_name,
        "sessions": sessions,
        "access_tokens": counts["access"],
        "browser_sessions": counts["browser"],
        "users_with_sessions": counts["index"],
        "users": counts["user"],
        "clients": counts["client"],
        "bytes_per_session": round(taken / sessions) if sessions else None,
        "keys": counts.total(),
        "used_memory": sum(server["used_memory"] for server in memory) or None,
        "memory_limit": sum(server["maxmemory"] for server in memory) or None,
        "masters": len(memory) or None,
    }
    sizes = {name: format_bytes(facts[name]) for name in ("used_memory", "memory_limit") if facts[name]}
    output.show(facts, list_facts(facts | sizes))
