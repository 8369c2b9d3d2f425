"""The metrics of whole processes: the sum over workers, a killed worker, and a separate address."""

import http.client
import json
import os
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from prometheus_client import Counter, Histogram

from service.observability import metrics
from tests.conftest import environment_of
from tests.support.clients_and_users import PHONE_APP, TOKEN
from tests.support.metrics_scrape import Scrape
from tests.support.servers import CHECKOUT, RedisServer, ServiceProcess, free_port, running_service
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

REQUESTS = 40
NAME = "token_service_redis_call_duration_seconds"


def ask(host: str, port: int, method: str = "GET", path: str = "/metrics") -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection(host, port, timeout=MAX_WAIT_SECONDS)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers
    finally:
        connection.close()


def scrape(port: int, host: str = "127.0.0.1") -> Scrape:
    status, text, _ = ask(host, port)
    assert status == 200
    return Scrape(text)


def send_malformed_refreshes(service: ServiceProcess, number: int) -> None:
    """Send each request on its own connection, so that all workers get some."""
    for _ in range(number):
        form = f"grant_type=refresh_token&refresh_token=x&client_id={PHONE_APP.client_id}".encode()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(service.url + TOKEN, form, timeout=MAX_WAIT_SECONDS).close()


def count_refused(scrape: Scrape) -> float:
    return scrape.sum("token_service_requests_total", endpoint="token", grant="refresh_token", outcome="rejected")


def wait_until_refused(port: int, number: int, host: str = "127.0.0.1") -> Scrape:
    """Wait for this number of refusals. Workers write their counts many times a second, not at each request."""
    wait_until(lambda: count_refused(scrape(port, host)) == number, f"{number} that were refused")
    return scrape(port, host)


def worker_pids(service: ServiceProcess) -> list[int]:
    """Return the process ids of all workers in the order of their start, ended ones included."""
    lines = [json.loads(line) for line in service.log.read_text().splitlines() if line.startswith("{")]
    events = [line["event"] for line in lines if line["event"].startswith("Started server process")]
    return [int(event.partition("[")[2].rstrip("]")) for event in events]


@pytest.fixture
def metrics_parent_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the service makes the folder that its workers share."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.parametrize("seconds", [0.0, 0.0009, 0.001, 0.0011, 0.25, 99.0])
def test_call_is_observed_as_by_the_library(seconds: float) -> None:
    def read() -> list[tuple[str, float]]:
        metrics.flush_counts()
        samples = Scrape(metrics.render().decode()).samples
        return [
            (sample.name + sample.labels.get("le", ""), sample.value)
            for sample in samples
            if sample.name.startswith(NAME) and sample.labels["call"] == "told"
        ]

    metrics.count_redis_call("told", seconds, False)
    before = read()
    metrics.count_redis_call("told", seconds, False)
    metrics.count_redis_call("told", seconds, False)
    after = read()

    bounds = [name.removeprefix(f"{NAME}_bucket") for name, _ in before if "_bucket" in name]
    reference = Histogram(NAME, "As ours.", buckets=[float(bound) for bound in bounds], registry=None)
    reference.observe(seconds)
    reference.observe(seconds)
    (family,) = reference.collect()
    expected = {sample.name + sample.labels.get("le", ""): pytest.approx(sample.value) for sample in family.samples}
    assert {name: new - old for (name, old), (_, new) in zip(before, after, strict=True)} == expected


@pytest.mark.clause("decided-metrics-by-client")
def test_later_clients_share_one_label() -> None:
    counter = Counter("answers", "By client.", ["client_id"], registry=None)
    buffer = metrics.CounterBuffer(counter, set())

    for number in (*range(1_003), 0, 1_002):
        buffer.count(f"client {number}")
    buffer.flush()

    (family,) = counter.collect()
    counts = {sample.labels["client_id"]: sample.value for sample in family.samples if sample.name == "answers_total"}
    assert len(counts) == 1_001
    assert (counts["client 0"], counts["client 999"], counts["other"]) == (2, 1, 4)


@pytest.mark.clause("decided-metrics")
def test_metrics_of_dead_workers_are_kept(
    redis_server: RedisServer, store: redis.Redis, registry: None, tmp_path: Path, metrics_parent_folder: Path
) -> None:
    own_port = free_port()
    environment = environment_of(
        redis_server, WEB_CONCURRENCY="2", TOKEN_SERVICE_METRICS_ADDRESS=f"127.0.0.1:{own_port}", LOG_LEVEL="info"
    )
    with running_service(tmp_path, environment) as service:
        wait_until(lambda: service.log.read_text().count("Application startup complete") == 2, "both workers to start")
        (shared,) = metrics_parent_folder.iterdir()
        assert stat.S_IMODE(shared.stat().st_mode) == 0o700

        send_malformed_refreshes(service, REQUESTS)
        before = wait_until_refused(own_port, REQUESTS)
        os.kill(worker_pids(service)[0], signal.SIGKILL)
        assert count_refused(scrape(own_port)) == REQUESTS
        wait_until(
            lambda: service.log.read_text().count("Application startup complete") == 3, "another worker to start"
        )
        assert count_refused(scrape(own_port)) == REQUESTS
        send_malformed_refreshes(service, REQUESTS)
        after = wait_until_refused(own_port, 2 * REQUESTS)

        for sample in before.samples:
            if sample.name.endswith(("_total", "_count", "_bucket", "_sum")):
                assert after.sum(sample.name, **sample.labels) >= sample.value, sample
        assert after.sum("token_service_build_info") == 1
        assert after.sum("token_service_client_rejections_total", client_id=PHONE_APP.client_id) == 2 * REQUESTS
        assert_only_metrics_are_served(own_port)
        assert ask("127.0.0.1", service.port)[0] == 404
        assert_refused_where_the_address_is_in_use(environment)
    assert not list(metrics_parent_folder.iterdir())


def assert_only_metrics_are_served(port: int) -> None:
    for method, path, status in (
        ("GET", "/metrics/", 404),
        ("GET", "/readyz", 404),
        ("POST", "/metrics", 405),
        ("HEAD", "/metrics", 200),
    ):
        assert ask("127.0.0.1", port, method, path)[0] == status, (method, path)


def assert_refused_where_the_address_is_in_use(environment: dict[str, str]) -> None:
    address = environment["TOKEN_SERVICE_METRICS_ADDRESS"]
    second = subprocess.run(
        [sys.executable, "-m", "service"],
        cwd=CHECKOUT,
        env=os.environ | environment | {"PORT": str(free_port()), "LOG_LEVEL": "error"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    host, _, port = address.partition(":")
    assert second.returncode == 2
    cure = "To use another one: TOKEN_SERVICE_METRICS_ADDRESS=HOST:PORT"
    assert second.stderr == f"cannot listen on {host} port {port}: the port is in use. {cure}\n"


@pytest.fixture
def restricted_url(redis_server: RedisServer, store: redis.Redis) -> Iterator[str]:
    """The URL of a Redis user who may not count the keys."""
    store.execute_command("ACL", "SETUSER", "blind", "reset", "on", ">word", "~*", "&*", "+@all", "-dbsize")  # type: ignore[no-untyped-call]
    yield redis_server.url.replace("//", "//blind:word@")
    store.acl_deluser("blind")


@pytest.mark.clause("decided-metrics")
@pytest.mark.single_server("its user is made on one server")
def test_metrics_address_of_one_process_is_private(
    redis_server: RedisServer, restricted_url: str, registry: None, tmp_path: Path, metrics_parent_folder: Path
) -> None:
    own_port = free_port()
    variables = {"REDIS_URL": restricted_url, "TOKEN_SERVICE_METRICS_ADDRESS": f"[::1]:{own_port}"}
    with running_service(tmp_path, environment_of(redis_server, **variables)) as service:
        send_malformed_refreshes(service, 3)
        wait_until(lambda: "may not count sessions" in service.log.read_text(), "the line in the log")
        found = wait_until_refused(own_port, 3, "::1")

        assert not found.label_values("token_service_stored_objects", "kind")
        assert service.log.read_text().count("may not count sessions") == 1
        assert ask("127.0.0.1", service.port)[0] == 404
        assert not list(metrics_parent_folder.iterdir())
