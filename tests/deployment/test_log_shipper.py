"""examples/syslog-ng.conf posts each security event, also if the collector, syslog-ng or both were away."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deployment.stack import running
from service.store.events import EventStream
from service.worker import Worker
from tests.conftest import environment_of
from tests.support.left_out import get_program
from tests.support.servers import CHECKOUT, RedisServer
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.single_server, pytest.mark.clause("decided-event-position")]


class Collector(ThreadingHTTPServer):
    """A collector that answers with `status`. It keeps what it has accepted, and counts all requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.requests = 0
        self.accepted: list[dict[str, Any]] = []

    @property
    def numbers(self) -> list[int]:
        """The numbers of the accepted events, each once."""
        return list({(event["stream"], event["id"]): event["number"] for event in self.accepted}.values())


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.status == 200:
            assert self.headers["Content-Type"] == "application/json"
            self.server.accepted += json.loads(body)
        self.server.requests += 1
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def running_collector() -> Iterator[Collector]:
    with Collector() as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        yield collector
        collector.shutdown()


class Shipper:
    """syslog-ng with the example, whose paths and address are those of the test."""

    def __init__(self, folder: Path, collector: Collector, store: RedisServer) -> None:
        self._folder = folder
        self._program = get_program("syslog-ng")
        self._environment = environment_of(store, REDIS_URL=store.url_of("events"))
        text = (CHECKOUT / "examples" / "syslog-ng.conf").read_text()
        for shipped, replacement in (
            ("/opt/token-service/.venv/bin/token-service-admin", f"{CHECKOUT}/scripts/admin"),
            ("https://collector.example/", f"http://127.0.0.1:{collector.server_port}/"),
            ("/var/lib/syslog-ng", str(folder)),
        ):
            assert shipped in text
            text = text.replace(shipped, replacement)
        (folder / "syslog-ng.conf").write_text(f"@version: 3.38\n{text}")

    def run(self, end: signal.Signals) -> AbstractContextManager[object]:
        """Run syslog-ng, and end it with this signal."""
        files = {"-f": "syslog-ng.conf", "-R": "persist", "-c": "control", "-p": "pid"}
        named = [word for option, name in files.items() for word in (option, str(self._folder / name))]
        return running("syslog-ng", [self._program, "-F", "--no-caps", *named], os.environ | self._environment, end, 20)


async def test_log_shipper_loses_no_event(redis_server: RedisServer, worker: Worker, tmp_path: Path) -> None:
    stream = worker.event_stream
    with running_collector() as collector:
        shipper = Shipper(tmp_path, collector, redis_server)
        collector.status = 503
        await append(stream, range(10))
        with shipper.run(signal.SIGKILL):
            await until(lambda: collector.requests > 1)
            await append(stream, range(10, 20))
        await append(stream, range(20, 30))
        with shipper.run(signal.SIGTERM):
            collector.status = 200
            await until(lambda: len(collector.numbers) == 30)
            collector.status, collector.requests = 401, 0
            await append(stream, range(30, 40))
            await until(lambda: collector.requests > 0)
        collector.status = 200
        await append(stream, range(40, 50))
        with shipper.run(signal.SIGTERM):
            await until(lambda: len(collector.numbers) == 50)

    assert sorted(collector.numbers) == list(range(50))


async def append(stream: EventStream, numbers: range) -> None:
    """Append events of every group, with characters that syslog or JSON could change."""
    for number in numbers:
        event = json.dumps({"event": "session_revoked", "number": number, "username": '<13>"ä\\\u2028'}).encode()
        await stream.append(*([event] if number % 3 == group else [] for group in range(3)))
