"""Every metric of the service. `render` merges those of several workers.

Label values are words of our own code. No text from a caller becomes a label.

Workers that are read as one keep their numbers in a shared private folder. PROMETHEUS_MULTIPROC_DIR must name it before
prometheus_client is imported.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Sequence
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
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from service import __version__
from service.observability.metric_buffers import CounterBuffer, HistogramBuffer

Outcome = Literal["ok", "refused", "throttled", "unavailable", "failed"]

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the shared folder. prometheus_client reads it, too."""

_REQUEST_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0)
_REDIS_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.025, 0.1, 0.5, 2.0)
_WAIT_SECONDS: Final = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
CACHES: Final = ("bearers", "clients", "origins", "realms", "users")
_THROTTLED: Final = frozenset({"client_throttled", "login_throttled", "pages_throttled", "provider_spared"})


log = logging.getLogger("service.metrics")

FLUSH_SECONDS: Final = 0.05
"""The interval at which a worker passes its buffered numbers to prometheus_client, so that they become visible."""


class Metrics:
    """All metrics of a process, and the buffers in front of those that every request changes."""

    def __init__(self) -> None:
        # Metrics in files have no `_created` samples. Metrics in memory shall look the same.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._counter = functools.partial(Counter, registry=self.registry)
        self._gauge = functools.partial(Gauge, registry=self.registry)
        self._histogram = functools.partial(Histogram, registry=self.registry)
        self._make_requests()
        self._make_redis()
        self._make_sessions()
        self._make_hashing()
        self._make_caches()
        self.buffers = (
            self.request_tally,
            self.request_spans,
            self.redis_spans,
            self.refresh_tally,
            self.lookup_tally,
        )

    def _make_requests(self) -> None:
        self.requests = self._counter(
            "token_service_requests",
            "Requests by endpoint, grant (none: not a token request, or not known) and outcome.",
            ("endpoint", "grant", "outcome"),
        )
        self.durations = self._histogram(
            "token_service_request_duration_seconds",
            "Time from the arrival of a request to the end of its response.",
            ("endpoint",),
            buckets=_REQUEST_SECONDS,
        )
        self.refusals = self._counter(
            "token_service_refusals",
            "Requests that were refused, by the fixed word that stands in the access log.",
            ("endpoint", "reason"),
        )
        self.build = self._gauge(
            "token_service_build_info",
            "Always 1; the label has the version.",
            ("version",),
            multiprocess_mode="livemax",
        )
        self.build.labels(__version__).set(1)
        self.request_tally = CounterBuffer(self.requests)
        self.request_spans = HistogramBuffer(self.durations, _REQUEST_SECONDS)

    def _make_redis(self) -> None:
        self.redis_durations = self._histogram(
            "token_service_redis_call_duration_seconds",
            "Duration of answered Redis calls, by kind or script. Repeated attempts while a slot moves are included.",
            ("call",),
            buckets=_REDIS_SECONDS,
        )
        self.redis_failures = self._counter(
            "token_service_redis_failures",
            "Redis calls that failed, because Redis was unreachable, too slow, or refused the command.",
            ("call",),
        )
        self.moving_slots = self._counter(
            "token_service_redis_moving_slot_refusals",
            "Attempts that a Redis Cluster refused because the slot of their keys is moving.",
        )
        self.redis_spans = HistogramBuffer(self.redis_durations, _REDIS_SECONDS)

    def _make_sessions(self) -> None:
        self.refreshes = self._counter(
            "token_service_refresh_tokens_presented",
            "Refresh tokens presented for a refresh, by verdict (repeated: a retry within the grace; replayed: "
            "presented after it, which ended the session; recovered: newer than Redis knew, as Redis lost writes).",
            ("verdict",),
        )
        self.code_replays = self._counter(
            "token_service_code_replays",
            "Authorization codes that were exchanged again, which ended the session that they had given.",
        )
        self.events_lost = self._counter(
            "token_service_events_lost",
            "Security events that are not in the stream in Redis; the log has them.",
        )
        self.live = self._gauge(
            "token_service_live_objects",
            "Sessions (families of refresh tokens) and access tokens in Redis: an estimate, unless there are few.",
            ("kind",),
            multiprocess_mode="livemostrecent",
        )
        for rare in ("repeated", "replayed", "recovered"):
            self.refreshes.labels(rare)  # shown from 0 on, or Prometheus would see no rise at the first count
        self.refresh_tally = CounterBuffer(self.refreshes)

    def _make_hashing(self) -> None:
        self.checks = self._gauge(
            "token_service_hashing_checks",
            "Checks of passwords or client secrets that wait or run at the moment.",
            ("pool",),
            multiprocess_mode="livesum",
        )
        self.waits = self._histogram(
            "token_service_hashing_wait_seconds",
            "Time that a check of a password or client secret waited for a thread.",
            ("pool",),
            buckets=_WAIT_SECONDS,
        )
        self.full_queues = self._counter(
            "token_service_hashing_refusals",
            "Checks that were refused because too many were waiting.",
            ("pool",),
        )

    def _make_caches(self) -> None:
        self.lookups = self._counter(
            "token_service_cache_lookups",
            "Lookups in a worker's caches: clients, origins, realms, users, "
            "or the bearer tokens of verify and introspect.",
            ("cache",),
        )
        self.misses = self._counter(
            "token_service_cache_misses",
            "Cache lookups that a worker could not answer from memory and sent to Redis.",
            ("cache",),
        )
        self.lookup_tally = CounterBuffer(self.lookups)
        for cache in CACHES:
            self.lookups.labels(cache)
            self.misses.labels(cache)


@functools.cache
def get_metrics() -> Metrics:
    """Return the metrics of this process, which are made at the first use. No module makes them when it is imported."""
    return Metrics()


def flush_counts(buffers: Sequence[CounterBuffer | HistogramBuffer] = ()) -> None:
    """Pass buffered counts to prometheus_client: those of `buffers`, or of all buffers by default.

    Call this in the thread of the event loop, which counts them. If a file in the shared folder cannot be written,
    counts are lost, but none is passed twice.
    """
    for pending in buffers or get_metrics().buffers:
        try:
            pending.flush()
        except OSError:
            log.exception("metric counts are lost: the worker's file in the shared metrics folder cannot be written")


def count_request(endpoint: str, grant: str, status: int, reason: str | None, seconds: float) -> None:
    metrics = get_metrics()
    metrics.request_tally.count(endpoint, grant, judge_outcome(status, reason))
    metrics.request_spans.note(endpoint, seconds)
    if reason is not None:
        metrics.refusals.labels(endpoint, reason).inc()


def judge_outcome(status: int, reason: str | None) -> Outcome:
    """Return the outcome of a request.

    A response with a reason counts as refused even if its status is below 400, as it can be for a page.
    """
    if reason in _THROTTLED:
        return "throttled"
    if status >= 500:
        return "unavailable" if status == 503 else "failed"
    return "ok" if reason is None and status < 400 else "refused"


def count_redis_call(call: str, seconds: float, failed: bool) -> None:
    if failed:
        get_metrics().redis_failures.labels(call).inc()
    else:
        get_metrics().redis_spans.note(call, seconds)


def note_live(sessions: float, access_tokens: float) -> None:
    """Set the gauges of live sessions and access tokens, which have no value before the first call. NaN: not known."""
    get_metrics().live.labels("session").set(sessions)
    get_metrics().live.labels("access_token").set(access_tokens)


class CacheCounts:
    """The lookup and miss counters of one cache, which `cache` names."""

    def __init__(self, cache: str) -> None:
        metrics = get_metrics()
        self._cache = cache
        self._lookups = metrics.lookup_tally
        self._misses = metrics.misses.labels(cache)

    def count_lookup(self) -> None:
        self._lookups.count(self._cache)

    def count_miss(self) -> None:
        self._misses.inc()

    def count_bearer_read(self, call: str, seconds: float, failed: bool) -> None:
        """Count a bearer lookup that read Redis, as a cache miss and as a Redis call. BearerLookup calls this."""
        self.count_miss()
        count_redis_call(call, seconds, failed)


def forget_worker(pid: int | None) -> None:
    """Delete the gauges of a worker that has ended. Its counts stay."""
    mark_process_dead(pid)  # type: ignore[no-untyped-call]


def render() -> bytes:
    """Return all metrics in the text format: of this process, or of all workers that share its folder."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return generate_latest(get_metrics().registry)
    together = CollectorRegistry()
    MultiProcessCollector(together, folder)  # type: ignore[no-untyped-call]
    return generate_latest(together)
