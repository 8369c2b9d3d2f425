"""Every metric of the service. `render` merges those of several workers.

Label values are words of our own code, and ids of registered clients. No text from a stranger becomes a label.

Workers that are read as one keep their numbers in a shared private folder. PROMETHEUS_MULTIPROC_DIR must name it before
prometheus_client is imported.
"""

from __future__ import annotations

import functools
import logging
import os
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

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

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the shared folder. prometheus_client reads it, too."""

_REQUEST_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0)
_REDIS_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.025, 0.1, 0.5, 2.0)
_WAIT_SECONDS: Final = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
CACHES: Final = ("bearers", "clients", "origins", "realms", "users")
MAX_CLIENT_LABELS: Final = 1_000
OTHER_CLIENTS: Final = "other"
_THROTTLED: Final = frozenset({"client_throttled", "login_throttled", "pages_throttled", "provider_throttled"})


log = logging.getLogger("service.metrics")

FLUSH_SECONDS: Final = 0.05
"""The interval at which a worker passes its buffered numbers to prometheus_client, so that they become visible."""


# The buffers are in front of counters and histograms, since a plain dict is faster than a metric of prometheus_client.
# Without them a verification from memory takes 1.21 times the processor time, and a refresh up to 1.10 times.
# tests/process/test_metrics.py holds the numbers that Prometheus reads.


class CounterBuffer:
    """The pending increments of a counter, by labels. To add to this buffer takes a tenth of the time.

    With `clients`, the first label that is counted is the id of a registered client. The first MAX_CLIENT_LABELS
    clients have their id as label, and all later ones share one. `clients` holds those that have one.
    """

    def __init__(self, counter: Counter, clients: set[str] | None = None) -> None:
        self._counter = counter
        self._clients = clients
        self._pending: dict[tuple[str, ...], int] = {}

    def count(self, *labels: str) -> None:
        self._pending[labels] = self._pending.get(labels, 0) + 1

    def flush(self) -> None:
        pending, self._pending = self._pending, {}
        for (first, *others), times in pending.items():
            self._counter.labels(self._choose_label(first), *others).inc(times)

    def _choose_label(self, first: str) -> str:
        if self._clients is None:
            return first
        if len(self._clients) < MAX_CLIENT_LABELS:
            self._clients.add(first)
        return first if first in self._clients else OTHER_CLIENTS


class HistogramBuffer:
    """The pending observations of a histogram with one label: for each label value the sum, and counts by bucket."""

    def __init__(self, histogram: Histogram, bounds: Sequence[float]) -> None:
        self._histogram = histogram
        self._bounds = bounds
        self._pending: dict[str, tuple[list[float], list[int]]] = {}

    def note(self, label: str, seconds: float) -> None:
        if label not in self._pending:
            self._pending[label] = [0.0], [0] * (len(self._bounds) + 1)
        total, buckets = self._pending[label]
        total[0] += seconds
        buckets[bisect_left(self._bounds, seconds)] += 1

    def flush(self) -> None:
        pending, self._pending = self._pending, {}
        for label, (total, buckets) in pending.items():
            # The public methods of a histogram take one observation at a time, so private attributes are used.
            recorded: Any = self._histogram.labels(label)
            recorded._sum.inc(total[0])
            for bucket, times in zip(recorded._buckets, buckets, strict=True):
                if times:
                    bucket.inc(times)


class Metrics:
    """All metrics of a process, and the buffers in front of those that every request changes."""

    def __init__(self) -> None:
        # Metrics in files have no `_created` samples. Metrics in memory shall look the same.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        counter = functools.partial(Counter, namespace="token_service", registry=self.registry)
        gauge = functools.partial(Gauge, namespace="token_service", registry=self.registry)
        histogram = functools.partial(Histogram, namespace="token_service", registry=self.registry)

        # Requests.
        labels = ("endpoint", "grant", "outcome")
        self.requests = counter("requests", "Requests by endpoint, grant type and outcome.", labels)
        self.durations = histogram(
            "request_duration_seconds", "Time until the response ends.", ("endpoint",), buckets=_REQUEST_SECONDS
        )
        self.refusals = counter("rejections", "Rejected requests by reason.", ("endpoint", "reason"))
        self.build = gauge("build_info", "Always 1.", ("version",), multiprocess_mode="livemax")
        self.build.labels(__version__).set(1)
        self.request_tally = CounterBuffer(self.requests)
        self.request_spans = HistogramBuffer(self.durations, _REQUEST_SECONDS)

        # Requests of registered clients.
        labelled = set[str]()
        self.client_tokens = counter("client_tokens_issued", "Token responses by client.", ("client_id", "grant"))
        self.client_refusals = counter("client_rejections", "Rejected requests by client.", ("client_id", "outcome"))
        self.client_token_tally = CounterBuffer(self.client_tokens, labelled)
        self.client_refusal_tally = CounterBuffer(self.client_refusals, labelled)

        # Calls of Redis.
        self.redis_durations = histogram(
            "redis_call_duration_seconds", "Duration of successful Redis calls.", ("call",), buckets=_REDIS_SECONDS
        )
        self.redis_failures = counter("redis_failures", "Redis calls that failed.", ("call",))
        self.moving_slots = counter(
            "redis_moving_slot_rejections", "Attempts that a Redis Cluster rejected because a slot is moving."
        )
        self.redis_spans = HistogramBuffer(self.redis_durations, _REDIS_SECONDS)

        # Sessions and events.
        self.refreshes = counter("refresh_tokens_presented", "Refresh tokens presented, by verdict.", ("verdict",))
        self.code_replays = counter("code_replays", "Authorization codes presented a second time.")
        self.events_lost = counter("events_lost", "Security events missing in Redis.")
        self.live = gauge(
            "stored_objects",
            "Estimate of the sessions and access tokens in Redis.",
            ("kind",),
            multiprocess_mode="livemostrecent",
        )
        self.memory = gauge("redis_memory_bytes", "Memory used by Redis.", multiprocess_mode="livemostrecent")
        self.memory_limit = gauge("redis_memory_limit_bytes", "0 if unlimited.", multiprocess_mode="livemostrecent")
        for rare in ("repeated", "replayed", "recovered"):
            self.refreshes.labels(rare)  # shown from 0 on, or Prometheus would see no rise at the first count
        self.refresh_tally = CounterBuffer(self.refreshes)

        # Slow hashes.
        self.checks = gauge("hashing_checks", "Hashes waiting or running.", ("pool",), multiprocess_mode="livesum")
        self.waits = histogram(
            "hashing_wait_seconds", "Time a hash waited for a thread.", ("pool",), buckets=_WAIT_SECONDS
        )
        self.full_queues = counter("hashing_rejections", "Hashes rejected after a long wait.", ("pool",))

        # Caches.
        self.lookups = counter("cache_lookups", "Lookups in a worker's caches.", ("cache",))
        self.misses = counter("cache_misses", "Cache lookups that had to query Redis.", ("cache",))
        self.lookup_tally = CounterBuffer(self.lookups)
        self.miss_tally = CounterBuffer(self.misses)
        for cache in CACHES:
            self.lookups.labels(cache)
            self.misses.labels(cache)

        self.buffers = [each for each in vars(self).values() if isinstance(each, CounterBuffer | HistogramBuffer)]


@functools.cache
def get_metrics() -> Metrics:
    """Return the metrics of this process, which are made at the first use. No module makes them when it is imported."""
    return Metrics()


def flush_counts() -> None:
    """Pass the buffered counts to prometheus_client.

    Call this in the thread of the event loop, which counts them. If a file in the shared folder cannot be written,
    counts are lost, but none is passed twice.
    """
    for pending in get_metrics().buffers:
        try:
            pending.flush()
        except OSError:
            log.exception("metric counts are lost: the worker's file in the shared metrics folder cannot be written")


def count_request(
    endpoint: str, grant: str, status: int, reason: str | None, seconds: float, client_id: str = ""
) -> None:
    """Count a request. `client_id` is the registered client that it names, or empty."""
    metrics, outcome = get_metrics(), judge_outcome(status, reason)
    metrics.request_tally.count(endpoint, grant, outcome)
    metrics.request_spans.note(endpoint, seconds)
    if reason is not None:
        metrics.refusals.labels(endpoint, reason).inc()
    if client_id and outcome != "ok":
        metrics.client_refusal_tally.count(client_id, outcome)
    elif client_id and endpoint == "token":
        metrics.client_token_tally.count(client_id, grant)


def judge_outcome(status: int, reason: str | None) -> str:
    """Return the outcome of a request: ok, refused, throttled, unavailable or failed.

    A response with a reason counts as refused even if its status is below 400, as it can be for a page.
    """
    if reason in _THROTTLED:
        return "throttled"
    if status >= 500:
        return "unavailable" if status == 503 else "failed"
    return "ok" if reason is None and status < 400 else "rejected"


def count_redis_call(call: str, seconds: float, failed: bool) -> None:
    if failed:
        get_metrics().redis_failures.labels(call).inc()
    else:
        get_metrics().redis_spans.note(call, seconds)


def note_live(sessions: float, access_tokens: float, memory: float, memory_limit: float) -> None:
    """Set the gauges of what Redis holds, which have no value before the first call. NaN: not known."""
    get_metrics().memory.set(memory)
    get_metrics().memory_limit.set(memory_limit)
    get_metrics().live.labels("session").set(sessions)
    get_metrics().live.labels("access_token").set(access_tokens)


class CacheCounts:
    """The lookup and miss counters of the cache named `cache`."""

    def __init__(self, cache: str) -> None:
        metrics = get_metrics()
        self._cache = cache
        self._lookups = metrics.lookup_tally
        self._misses = metrics.miss_tally

    def count_lookup(self) -> None:
        self._lookups.count(self._cache)

    def count_miss(self) -> None:
        self._misses.count(self._cache)

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
