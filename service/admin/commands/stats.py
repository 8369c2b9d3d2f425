"""The command `stats`, which counts live objects and the memory that they take."""

from __future__ import annotations

from typing import Any

from service.admin.command import command, console
from service.admin.context import AdminContext
from service.admin.output import Output, format_bytes, list_facts
from service.store.reports.key_statistics import Statistics


@command(console, "stats", examples=("stats", "stats --json"))
async def stats(context: AdminContext, output: Output) -> None:
    """Count live objects and the memory that they take.

    The objects are sessions, access tokens, users and clients. Every key is counted, on every master. Memory is
    estimated from samples.
    """
    with output.progress("Counting keys") as advance:
        counts = await Statistics(context.redis).count_keys(advance)
    sessions = counts.keys.get("family", 0)
    # A session has these kinds of keys. A user has one index, which lists all sessions of the user.
    kinds = ("family", "access", "index")
    taken = sum(counts.keys.get(kind, 0) * counts.mean_bytes.get(kind, 0.0) for kind in kinds)
    memory = await context.redis.read_info("memory")
    facts: dict[str, Any] = {
        "store": context.settings.store_name,
        "sessions": sessions,
        "access_tokens": counts.keys.get("access", 0),
        "browser_sessions": counts.keys.get("browser", 0),
        "users_with_sessions": counts.keys.get("index", 0),
        "users": counts.keys.get("user", 0),
        "clients": counts.keys.get("client", 0),
        "bytes_per_session": round(taken / sessions) if sessions else None,
        "keys": sum(counts.keys.values()),
        "used_memory": sum(server["used_memory"] for server in memory) or None,
        "memory_limit": sum(server["maxmemory"] for server in memory) or None,
        "masters": len(memory) or None,
    }
    sizes = {name: format_bytes(facts[name]) for name in ("used_memory", "memory_limit") if facts[name]}
    output.show(facts, list_facts(facts | sizes))
