"""The command `stats`, which counts live objects and the memory that they take, and calculates what they need."""

from __future__ import annotations

import math
from typing import Any, Final

import click

from service.admin.command import command, console
from service.admin.context import AdminContext
from service.admin.output import CommandRefused, Fields, Output, format_bytes, list_facts
from service.store.reports.key_statistics import count_keys

# docs/explanation/benchmarks.md#numbers-for-sizing: bytes in Redis, and seconds of a core of Redis and of the service.
_BYTES: Final = {"sessions": 610, "users": 800, "access_tokens": 304 + 230}
_SECONDS: Final = {"refreshes": (27e-6, 80e-6), "logins": (0.0, 18.4e-3), "lookups": (2e-6, 0.0)}
_INSTALLED: Final = 2 * 2 / 0.8
"""Memory to install for the data: a master and a replica, each with the same again for a fork, and filled to 80 %."""
_PLAN: Final = "Also calculate what the current load needs, or what this number of sessions would need."


@command(console, "stats", examples=("stats", "stats --json", "stats --plan 1000000000"))
@click.option("--plan", is_flag=False, flag_value=0, type=click.IntRange(0), metavar="[SESSIONS]", help=_PLAN)
@click.option("--peak", default=3.0, show_default=True, help="Peak rates divided by mean rates.")
@click.option("--gigabyte-price", default=5.0, show_default=True, help="Price of a gigabyte per month.")
@click.option("--core-price", default=20.0, show_default=True, help="Price of a core per month.")
async def stats(context: AdminContext, output: Output, plan: int | None, **options: float) -> None:
    """Count sessions, access tokens, users and clients.

    Every key on every master is counted. The memory is estimated from samples.
    """
    with output.progress("Counting keys") as advance:
        counts, mean_bytes = await count_keys(context.redis, advance)
    sessions = counts["family"]
    # A session has these kinds of keys. A user has one index, which lists all sessions of the user.
    taken = sum(counts[kind] * mean_bytes.get(kind, 0.0) for kind in ("family", "access", "index"))
    servers = await context.redis.read_info("all")
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
        "used_memory": sum(server["used_memory"] for server in servers) or None,
        "memory_limit": sum(server["maxmemory"] for server in servers) or None,
        "masters": len(servers) or None,
    }
    lines = list_facts(facts | {key: format_bytes(facts[key]) for key in ("used_memory", "memory_limit") if facts[key]})
    if plan is not None:
        if not (sessions and servers):
            raise CommandRefused("a plan needs sessions in Redis, and a Redis user with INFO permission")
        load = {name: facts[name] for name in _BYTES} | {
            "refreshes": 1000 * counts["access"] / context.settings.access_token_ms,
            "logins": 1000 * sessions / context.settings.refresh_token_ms,
            "lookups": sum(map(_count_lookups, servers)),
        }
        scale = (plan or sessions) / sessions
        facts["plan"] = make_plan({name: scale * each for name, each in load.items()}, **options)
        lines += [("", ""), *list_facts(facts["plan"])]
    output.show(facts, lines)


def _count_lookups(server: Fields) -> float:
    """Return the GETs of a server a second, the mean since its start."""
    calls = server.get("cmdstat_get", "calls=0").partition(",")[0].removeprefix("calls=")
    return int(calls) / (1 + int(server["uptime_in_seconds"]))


def make_plan(load: Fields, peak: float, gigabyte_price: float, core_price: float) -> dict[str, float]:
    """Return what the load needs, by the arithmetic of docs/how-to/size-and-scale.md.

    `load` has the numbers of sessions, users and live access tokens, and the mean number of refreshes, logins and
    lookups a second.
    """
    at_peak = {name: peak * load[name] for name in _SECONDS}
    redis_cores = sum(at_peak[name] * seconds[0] for name, seconds in _SECONDS.items()) / 0.5
    service_cores = sum(at_peak[name] * seconds[1] for name, seconds in _SECONDS.items()) / 0.6
    gigabytes = sum(load[name] * size for name, size in _BYTES.items()) / 1e9
    masters = max(1, math.ceil(redis_cores), math.ceil(gigabytes / 16))
    needs = {f"{name}_per_second": rate for name, rate in at_peak.items()} | {
        "lookups_per_access_token": load["lookups"] / max(1e-9, load["refreshes"]),
        "masters": masters,
        "access_tokens_per_master": load["access_tokens"] / masters,
        "gigabytes_of_masters": gigabytes,
        "gigabytes_to_install": _INSTALLED * gigabytes,
        "redis_cores": redis_cores,
        "service_cores": service_cores,
        "cost_per_month": _INSTALLED * gigabytes * gigabyte_price + (redis_cores + service_cores) * core_price,
    }
    return {name: round(each) if each >= 100 or each % 1 == 0 else float(f"{each:.2g}") for name, each in needs.items()}
