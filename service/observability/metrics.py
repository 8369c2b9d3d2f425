"""What Prometheus reads: every metric of the service, and several workers read as one.

Label values are words of our own code; nothing that a caller sends becomes one.

Workers that shall be read as one share a private folder, which PROMETHEUS_MULTIPROC_DIR names before this module is
loaded. Each has a place there, which it holds by a lock for as long as it lives, and keeps its numbers in files of that
place. Who replaces a dead worker takes its place, and counts on from where that one ended: so no sum ever goes
backwards, and there are no more files than there were workers at once. What a dead worker said of itself, such as the
length of its queue, is not read any more.
"""

from __future__ import annotations

import logging
import os
import time
from math import nan
from pathlib import Path
from typing import Final, Literal

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from service import __version__
from service.observability.metric_buffers import CounterBuffer, HistogramBuffer
from service.observability.multiworker import MultiWorkerCollector, share_counts

Outcome = Literal["ok", "refused", "throttled", "unavailable", "failed"]

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The variable is that of the library, which reads it by itself, too."""

_REQUEST_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0)
_REDIS_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.025, 0.1, 0.5, 2.0)
_WAIT_SECONDS: Final = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
_THROTTLED: Final = frozenset({"client_throttled", "login_throttled", "pages_throttled", "organisation_spared"})


if os.environ.get(FOLDER):
    share_counts(Path(os.environ[FOLDER]))
# Files have none of those, and what is in memory shall look the same.
disable_created_metrics()  # type: ignore[no-untyped-call]

log = logging.getLogger("service.metrics")

_registry: Final = CollectorRegistry()

_requests: Final = Counter(
    "token_service_requests",
    "Requests by endpoint, grant (none: not a token request, or not known) and outcome.",
    ("endpoint", "grant", "outcome"),
    registry=_registry,
)
_durations: Final = Histogram(
    "token_service_request_duration_seconds",
    "From the arrival of a request to the end of its answer.",
    ("endpoint",),
    buckets=_REQUEST_SECONDS,
    registry=_registry,
)
_refusals: Final = Counter(
    "token_service_refusals",
    "Requests that were refused, by the fixed word that stands in the access log.",
    ("endpoint", "reason"),
    registry=_registry,
)
_redis_durations: Final = Histogram(
    "token_service_redis_call_duration_seconds",
    "Calls of Redis that were answered, by kind or script; the wait for a free connection included.",
    ("call",),
    buckets=_REDIS_SECONDS,
    registry=_registry,
)
_redis_failures: Final = Counter(
    "token_service_redis_failures",
    "Calls of Redis that came to nothing, because it was away, too slow, or could not serve.",
    ("call",),
    registry=_registry,
)
_moving_slots: Final = Counter(
    "token_service_redis_moving_slot_refusals",
    "Attempts that a Redis Cluster refused because the slot of their keys is moving.",
    registry=_registry,
)
_refreshes: Final = Counter(
    "token_service_refresh_tokens_presented",
    "Refresh tokens presented for a refresh, by verdict (repeated: a retry within the grace; replayed: a theft).",
    ("verdict",),
    registry=_registry,
)
_code_replays: Final = Counter(
    "token_service_code_replays",
    "Authorization codes that were exchanged again, which ended the session that they had given.",
    registry=_registry,
)
_events_lost: Final = Counter(
    "token_service_events_lost",
    "Security events that are not in the stream in Redis; the log has them.",
    registry=_registry,
)
_checks: Final = Gauge(
    "token_service_hashing_checks",
    "Checks of passwords or client secrets that wait or run at the moment.",
    ("pool",),
    multiprocess_mode="livesum",
    registry=_registry,
)
_waits: Final = Histogram(
    "token_service_hashing_wait_seconds",
    "How long a check of a password or client secret waited for a thread.",
    ("pool",),
    buckets=_WAIT_SECONDS,
    registry=_registry,
)
_full_queues: Final = Counter(
    "token_service_hashing_refusals",
    "Checks that were refused because too many were waiting.",
    ("pool",),
    registry=_registry,
)
_lookups: Final = Counter(
    "token_service_cache_lookups",
    "Questions to a worker's memory: clients, origins, realms, users, or the bearer tokens of verify and introspect.",
    ("cache",),
    registry=_registry,
)
_misses: Final = Counter(
    "token_service_cache_misses",
    "Of these, the ones that Redis had to answer.",
    ("cache",),
    registry=_registry,
)
_live: Final = Gauge(
    "token_service_live_objects",
    "Sessions (families of refresh tokens) and access tokens in Redis: an estimate, unless there are few.",
    ("kind",),
    multiprocess_mode="livemostrecent",
    registry=_registry,
)
_build: Final = Gauge(
    "token_service_build_info",
    "Always 1; the label has the version.",
    ("version",),
    multiprocess_mode="livemax",
    registry=_registry,
)
_build.labels(__version__).set(1)
for _rare in ("repeated", "replayed", "recovered"):
    _refreshes.labels(_rare)  # from 0 on, or its first time would be no rise

FLUSH_SECONDS: Final = 0.05
"""How often what every request counts is told to the library, and so to whoever reads all workers as one."""


_request_tally: Final = CounterBuffer(_requests)
_request_spans: Final = HistogramBuffer(_durations, _REQUEST_SECONDS)
_redis_spans: Final = HistogramBuffer(_redis_durations, _REDIS_SECONDS)
_refresh_tally: Final = CounterBuffer(_refreshes)
_lookup_tally: Final = CounterBuffer(_lookups)


def flush_counts() -> None:
    """In the thread of the event loop, which is where all of this is counted. Nothing is told twice, whatever fails."""
    for pending in (_request_tally, _request_spans, _redis_spans, _refresh_tally, _lookup_tally):
        try:
            pending.flush()
        except OSError:
            log.exception("numbers of the metrics are lost: the file that workers share cannot be written")


def count_request(endpoint: str, grant: str, status: int, reason: str | None, seconds: float) -> None:
    _request_tally.count(endpoint, grant, judge_outcome(status, reason))
    _request_spans.note(endpoint, seconds)
    if reason is not None:
        _refusals.labels(endpoint, reason).inc()


def judge_outcome(status: int, reason: str | None) -> Outcome:
    """Pages refuse with other statuses than addresses for programs do, but never without a reason."""
    if reason in _THROTTLED:
        return "throttled"
    if status >= 500:
        return "unavailable" if status == 503 else "failed"
    return "ok" if reason is None and status < 400 else "refused"


def count_redis_call(call: str, seconds: float, failed: bool) -> None:
    if failed:
        _redis_failures.labels(call).inc()
    else:
        _redis_spans.note(call, seconds)


def count_moving_slot() -> None:
    _moving_slots.inc()


def count_refresh(verdict: str) -> None:
    _refresh_tally.count(verdict)


def count_code_replay() -> None:
    _code_replays.inc()


def count_events_lost(count: int) -> None:
    _events_lost.inc(count)


def note_live(sessions: float, access_tokens: float) -> None:
    """Until it is first known the metric has no value at all."""
    _live.labels("session").set(sessions)
    _live.labels("access_token").set(access_tokens)


def forget_live() -> None:
    """What was known is so no more, and the last number would go on looking true."""
    note_live(nan, nan)


class CacheCounts:
    """Of the memory of this name."""

    def __init__(self, cache: str) -> None:
        _lookups.labels(cache)
        self._cache = cache
        self._misses = _misses.labels(cache)

    def count_lookup(self) -> None:
        _lookup_tally.count(self._cache)

    def count_miss(self) -> None:
        self._misses.inc()


bearers: Final = CacheCounts("bearers")
"""The memory of verify and introspect; a gateway's library counts nothing by itself, since it may be anybody's."""


def count_bearer_read(call: str, seconds: float, failed: bool) -> None:
    bearers.count_miss()
    count_redis_call(call, seconds, failed)


class HashingCounts:
    """Of the pool of this name."""

    def __init__(self, pool: str) -> None:
        self._checks = _checks.labels(pool)
        self._waits = _waits.labels(pool)
        self._refusals = _full_queues.labels(pool)

    def count_begun(self) -> None:
        self._checks.inc()

    def count_ended(self) -> None:
        self._checks.dec()

    def count_refused(self) -> None:
        self._refusals.inc()

    def note_wait_since(self, started_at: float) -> None:
        """`started_at` by `time.perf_counter`."""
        self._waits.observe(time.perf_counter() - started_at)


def render() -> bytes:
    """All metrics in the text format: of this process, or of all workers that share its folder."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return generate_latest(_registry)
    together = CollectorRegistry()
    together.register(MultiWorkerCollector(Path(folder)))
    return generate_latest(together)
