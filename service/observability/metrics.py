"""Every metric of the service, for Prometheus, which reads several workers as one.

Label values are words of our own code. No text from a caller becomes a label.

Workers that are read as one keep their numbers in a shared private folder (see multiworker.py). The variable
PROMETHEUS_MULTIPROC_DIR must name it before this module is loaded.
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
"""The environment variable that names the shared folder. prometheus_client reads it, too."""

_REQUEST_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0)
_REDIS_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.025, 0.1, 0.5, 2.0)
_WAIT_SECONDS: Final = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
_THROTTLED: Final = frozenset({"client_throttled", "login_throttled", "pages_throttled", "organisation_spared"})


if os.environ.get(FOLDER):
    share_counts(Path(os.environ[FOLDER]))
# Metrics in files have no `_created` samples. Metrics in memory shall look the same.
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
    _refreshes.labels(_rare)  # shown from 0 on, or Prometheus would see no rise at the first count

FLUSH_SECONDS: Final = 0.05
"""The interval at which the counts of requests are passed to prometheus_client, and so become visible."""


_request_tally: Final = CounterBuffer(_requests)
_request_spans: Final = HistogramBuffer(_durations, _REQUEST_SECONDS)
_redis_spans: Final = HistogramBuffer(_redis_durations, _REDIS_SECONDS)
_refresh_tally: Final = CounterBuffer(_refreshes)
_lookup_tally: Final = CounterBuffer(_lookups)


def flush_counts() -> None:
    """Pass the buffered counts to prometheus_client. Call this in the thread of the event loop, which counts them.

    If the shared file cannot be written, counts are lost, but none is passed twice.
    """
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
    """Return the outcome of a request. Pages refuse with other statuses than the API, but never without a reason."""
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
    """Set the gauges of live objects, which have no value before the first call."""
    _live.labels("session").set(sessions)
    _live.labels("access_token").set(access_tokens)


def forget_live() -> None:
    """Set the gauges to NaN, so that a stale count is not shown as current."""
    note_live(nan, nan)


class CacheCounts:
    """The counts of look-ups and misses of the cache with this name."""

    def __init__(self, cache: str) -> None:
        _lookups.labels(cache)
        self._cache = cache
        self._misses = _misses.labels(cache)

    def count_lookup(self) -> None:
        _lookup_tally.count(self._cache)

    def count_miss(self) -> None:
        self._misses.inc()


bearers: Final = CacheCounts("bearers")
"""The cache of verify and introspect. The gateway package counts nothing itself, since any API may import it."""


def count_bearer_read(call: str, seconds: float, failed: bool) -> None:
    bearers.count_miss()
    count_redis_call(call, seconds, failed)


class HashingCounts:
    """The counts of the hashing pool with this name."""

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
        """Record the wait since `started_at`, a time of `time.perf_counter`."""
        self._waits.observe(time.perf_counter() - started_at)


def render() -> bytes:
    """Return all metrics in the text format: of this process, or of all workers that share its folder."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return generate_latest(_registry)
    together = CollectorRegistry()
    together.register(MultiWorkerCollector(Path(folder)))
    return generate_latest(together)
