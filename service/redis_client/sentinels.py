"""The lookup of the master and its replicas at the Sentinels, with redis-py. The connection to each Sentinel is kept.

A connection to a Sentinel begins without authentication. If the Sentinel demands it, the user and the password of
REDIS_URL are used. This module imports redis-py, so it is imported only if the URL names Sentinels.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Collection, Mapping
from contextvars import Context
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError

from .connection import ASK_PAUSE_SECONDS, ASK_SECONDS, NoneSucceeded, get_first
from .deadline import StoreUnavailable, end_task, read_clock
from .url import Node, RedisUrl

_DOWN: Final = ("is_sdown", "is_odown", "is_disconnected")

SURVEY_SECONDS: Final = 0.1
"""The time for which the Sentinels' reports about replicas are used.

Before it promotes a replica, a Sentinel reports a failover for longer than this. So a younger report cannot miss it.
"""

SURVEY_PAUSE_SECONDS: Final = 0.1
"""If more than half of the Sentinels have answered, the others are waited for no longer than this."""

MAX_DOWN_AFTERS: Final = 10
"""Sentinel promotes no replica that has not followed its master for longer than so many `down-after-milliseconds`."""


class _Report(NamedTuple):
    """The report of one Sentinel. `promotable` has the addresses of the replicas that it could promote, if asked."""

    master: Node
    is_failing_over: bool
    promotable: Collection[str]


class _Survey(NamedTuple):
    """The reports of the Sentinels together, which were asked at this time by `read_clock`."""

    taken: float
    master: Node
    promotable: frozenset[str]


class Sentinels:
    """The Sentinels of a URL. Each has one client of redis-py and at most two queries at a time.

    redis-py closes a connection if a wait for its answer is cancelled. The next query then connects again.
    """

    def __init__(self, url: RedisUrl) -> None:
        self._url = url
        self._nodes = list(url.nodes)
        self._clients = {node: _make_client(url, node) for node in url.nodes}
        self._given: dict[Node, RedisUrl] = {}  # to Sentinels that demanded a password
        self._asking = asyncio.Lock()
        self._seen: _Survey | None = None
        self._surveying: asyncio.Task[_Survey] | None = None

    async def get_master(self) -> Node:
        """Return the master's address. The Sentinel that answered last is asked first.

        Raises StoreUnavailable if no Sentinel knows the address.
        """
        attempts = [functools.partial(self._ask, node) for node in self._nodes]
        try:
            async with self._asking, asyncio.timeout(ASK_SECONDS):
                node, report = await get_first(attempts, pause_seconds=ASK_PAUSE_SECONDS)
        except (NoneSucceeded, TimeoutError) as error:
            reason = str(error) or f"no response within {ASK_SECONDS:g} s"
            raise StoreUnavailable(f"no Sentinel reports a master with this name: {reason}") from error
        self._nodes.remove(node)
        self._nodes.insert(0, node)
        return report.master

    async def list_promotable(self, master: Node | None) -> frozenset[str]:
        """Return the addresses (`ip:port`) of the replicas that some Sentinel could promote.

        All Sentinels are asked, at most ten times a second. Raises StoreUnavailable unless more than half of them
        answer, all of these name this master, and none of them is carrying out a failover.
        """
        seen = self._seen
        if seen is None or seen.master != master or read_clock() > seen.taken + SURVEY_SECONDS:
            if self._surveying is None or self._surveying.done():
                self._surveying = asyncio.create_task(self._survey(), context=Context())
                self._surveying.add_done_callback(_read_error)
            seen = await asyncio.shield(self._surveying)
        if seen.master != master:
            raise StoreUnavailable("the Sentinels report a different master")
        return seen.promotable

    async def _survey(self) -> _Survey:
        started = read_clock()
        asked = [asyncio.create_task(self._ask(node, with_replicas=True)) for node in self._clients]
        reports: list[_Report] = []
        errors: set[str] = set()
        waiting = set(asked)
        try:
            while waiting:
                seconds = SURVEY_PAUSE_SECONDS if 2 * len(reports) > len(asked) else ASK_SECONDS
                done, waiting = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
                reports += [each.result()[1] for each in done if not each.exception()]
                errors |= {str(each.exception()) for each in done if each.exception()}
        finally:
            for each in asked:
                each.cancel()
        if 2 * len(reports) <= len(asked):
            reason = "; ".join([f"{len(reports)} of {len(asked)} Sentinels reported their replicas", *sorted(errors)])
            raise StoreUnavailable(reason)
        if len({report.master for report in reports}) > 1 or any(report.is_failing_over for report in reports):
            raise StoreUnavailable("the Sentinels are changing the master")
        promotable = frozenset().union(*(report.promotable for report in reports))
        self._seen = _Survey(started, reports[0].master, promotable)
        return self._seen

    async def close(self) -> None:
        """Close all connections. A later query connects again."""
        if self._surveying is not None:
            await end_task(self._surveying)
        for client in self._clients.values():
            await client.aclose()

    async def _ask(self, node: Node, *, with_replicas: bool = False) -> tuple[Node, _Report]:
        """Return the address of the Sentinel and its report."""
        try:
            return node, await self._read_report(node, with_replicas)
        except (AuthenticationError, NoPermissionError):
            url = self._url.renew()
            if url.password is None or self._given.get(node) == url:
                raise
            self._given[node] = url
            await self._clients[node].aclose()
            self._clients[node] = _make_client(url, node, username=url.username, password=url.password)
            return node, await self._read_report(node, with_replicas)

    async def _read_report(self, node: Node, with_replicas: bool) -> _Report:
        """Raises ValueError if the Sentinel knows no master of this name that is up."""
        client, name = self._clients[node], self._url.master_name or ""
        masters = await client.sentinel_masters()
        assert isinstance(masters, dict)  # the form that redis-py gives to RESP2
        master = masters.get(name)
        if master is None or not master["is_master"] or any(master[state] for state in _DOWN):
            raise ValueError("no running master with this name")
        replicas = await client.sentinel_slaves(name) if with_replicas else []
        return _Report(
            (master["ip"], int(master["port"])),
            "failover_in_progress" in master["flags"],
            _list_promotable([each for each in replicas if _is_promotable(each, master)]),
        )


def _list_promotable(replicas: Collection[Mapping[str, Any]]) -> set[str]:
    """Leave out an old master that is not a replica yet, if Sentinel would rather promote a replica.

    Sentinel makes it a replica eight seconds after a planned failover. Until then it can confirm nothing. Sentinel
    knows no offset of it, so a replica of the same priority comes before it.
    """
    best = min((each["slave-priority"] for each in replicas if not _is_old_master(each)), default=math.inf)
    return {each["name"] for each in replicas if not _is_old_master(each) or each["slave-priority"] < best}


def _is_old_master(replica: Mapping[str, Any]) -> bool:
    """Return False for a replica that a Sentinel is promoting, whose former master the report still names."""
    return bool(replica["role-reported"] == "master" and replica["master-host"] == "?")


def _is_promotable(replica: Mapping[str, Any], master: Mapping[str, Any]) -> bool:
    """Return False for a replica that is down, did not follow its master for long, or is never promoted.

    One that is disconnected only may be promoted a moment later.
    """
    is_down = replica["is_sdown"] or replica["is_odown"]
    is_stale = replica["master-link-down-time"] > MAX_DOWN_AFTERS * master["down-after-milliseconds"]
    return not (is_down or is_stale or replica["slave-priority"] == 0)


def _make_client(url: RedisUrl, node: Node, *, username: str | None = None, password: str | None = None) -> Redis:
    """Return a client that sends each query once, and waits no longer than `get_master` does.

    RESP2 without a client name needs no handshake, so an unauthenticated query takes one round trip.
    """
    return Redis(
        host=node[0],
        port=node[1],
        username=username,
        password=password,
        ssl=url.tls,
        protocol=2,
        decode_responses=True,
        driver_info=None,
        socket_timeout=ASK_SECONDS,
        socket_connect_timeout=ASK_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )


def _read_error(survey: asyncio.Task[_Survey]) -> None:
    """Read the error of a survey for which nobody waits any longer, so that asyncio does not warn of it."""
    if not survey.cancelled():
        survey.exception()
