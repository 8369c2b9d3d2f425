"""`python -m service` and `./scripts/serve`, as whole processes."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from deployment.stack import Stack, write_certificate
from service.embedded.data_folder import socket_path
from service.system.process import __file__ as parent_death
from tests.process.locks import can_lock
from tests.support.certificates import Authority
from tests.support.servers import CHECKOUT, get_status
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

SERVICE = (sys.executable, "-P", "-m", "service")


class Service:
    """A service process, which ends with the tests at the latest."""

    def __init__(self, folder: Path, command: tuple[str, ...], environment: dict[str, str]) -> None:
        self.data_dir = folder / "data"
        self.output = folder / "stdout"
        self.log = folder / "stderr"
        # Successive starts share the folder, and each has its own output.
        with self.output.open("w") as output, self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", parent_death, str(os.getpid()), *command],
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
            )

    def wait_until_ready(self) -> "Service":
        wait_until(lambda: self.output.read_text().endswith("\n") or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()
        return self

    def curl_words(self) -> list[str]:
        words = shlex.split(self.output.read_text())
        assert words[0] == "curl"
        return words

    @property
    def address(self) -> str:
        (url,) = (word for word in self.curl_words() if word.startswith("http://"))
        return urllib.parse.urlsplit(url).netloc

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(MAX_WAIT_SECONDS)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.wait()

    def get(self, path: str) -> int:
        return get_status(self.address, path)

    def store(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(socket_path(self.data_dir)), decode_responses=True)

    def store_is_gone(self) -> bool:
        """Return True if the server has ended. It holds this lock while it lives."""
        file = self.data_dir / "store.lock"
        return not file.exists() or can_lock(file)

    def port_is_free(self, address: str) -> bool:
        """Return True if nothing listens on the port, so that no worker is left."""
        host, _, port = address.rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) != 0


Start = Callable[..., Service]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts the service. Its environment has only what programs need to run."""
    started: list[Service] = []

    def start_service(*arguments: str, command: tuple[str, ...] = SERVICE, **variables: str) -> Service:
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment |= {"PYTHONPATH": str(CHECKOUT), "TOKEN_SERVICE_DATA_DIR": str(tmp_path / "data")}
        service = Service(tmp_path, command + arguments, environment | variables)
        started.append(service)
        return service

    yield start_service
    for service in started:
        service.end()


@pytest.fixture
def start_ready(start: Start) -> Start:
    def start_and_wait(*arguments: str, **variables: Any) -> Service:
        return start("--port", "0", *arguments, **variables).wait_until_ready()

    return start_and_wait


# Starts


def read_events(service: Service, name: str) -> list[dict[str, Any]]:
    """Return the log lines of this event. An incomplete last line is left out."""
    whole, _, _ = service.log.read_text().rpartition("\n")
    events = [json.loads(line) for line in whole.splitlines()]
    return [event for event in events if event["event"] == name]


def test_client_disconnect_is_logged_without_error(start_ready: Start) -> None:
    service = start_ready()
    send_half_a_request(service.address).close()
    wait_until(lambda: any(event["method"] == "POST" for event in read_events(service, "request")))
    service.end()
    (event,) = (event for event in read_events(service, "request") if event["method"] == "POST")
    assert (event["status"], event["reason"], event["path"]) == (400, "client_gone", "/oauth2/v1/token")
    assert "Traceback" not in service.log.read_text()
    assert '"exception"' not in service.log.read_text()


# Refused starts: one line each, and no process


def assert_refused(service: Service, *lines: str) -> None:
    assert service.wait() == 2
    messages = [line for line in service.log.read_text().splitlines() if not line.startswith("{")]
    assert len(messages) == len(lines)
    for line, expected in zip(messages, lines, strict=True):
        assert expected in line
    assert service.store_is_gone()


@pytest.mark.clause("decided-bad-setting")
def test_all_bad_settings_are_reported_at_once(start: Start) -> None:
    service = start(PORT="http", TOKEN_SERVICE_CODE_TTL="-1")
    assert_refused(service, "PORT: 'http': expected", "TOKEN_SERVICE_CODE_TTL: '-1': expected")
    assert not service.data_dir.exists()


def test_an_argument_is_held_to_the_rules_of_the_setting(start: Start) -> None:
    assert_refused(start("--workers", "0"), "WEB_CONCURRENCY: '0': expected")


def test_a_bad_seed_is_refused(start: Start, tmp_path: Path) -> None:
    seed = tmp_path / "seed.yaml"
    seed.write_text("clients:\n  - client_idd: shop\n")
    service = start(TOKEN_SERVICE_SEED_FILE=str(seed))
    assert service.wait() == 2
    first, *mistakes = service.log.read_text().splitlines()
    assert first == f"errors in the seed file {seed}:"
    assert [mistake.partition(":")[0] for mistake in mistakes] == ["clients[0].client_idd", "clients[0].client_id"]
    assert not service.data_dir.exists()


KEY = "a key of 32 bytes with 16 distinct"


@pytest.mark.clause("decided-embedded-store-in-use")
def test_a_second_start_on_a_folder_in_use_is_refused(start_ready: Start, start: Start, tmp_path: Path) -> None:
    first = start_ready()
    address = first.address
    second = start("--port", "0")
    assert second.wait() == 2
    (line,) = (line for line in second.log.read_text().splitlines() if not line.startswith("{"))
    assert f"{tmp_path / 'data'} is in use" in line
    assert line.endswith("TOKEN_SERVICE_DATA_DIR=FOLDER")
    assert get_status(address, "/readyz") == 200


def test_a_port_in_use_is_refused(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert_refused(start("--port", port), f"port {port}: the port is in use. To use another one: --port 8123")


@pytest.mark.parametrize("file", ["secret_key.draft", "store.log"])
def test_a_data_folder_that_cannot_be_written_is_refused(start: Start, tmp_path: Path, file: str) -> None:
    (tmp_path / "data" / file).mkdir(parents=True)
    assert_refused(start("--port", "0"), f"{tmp_path / 'data'} cannot be written: Is a directory. To use another")


def test_a_certificate_and_its_key_are_accepted(start: Start, tmp_path: Path) -> None:
    stack = Stack(tmp_path, *[0] * 4)
    (tmp_path / "tls").mkdir()
    write_certificate(stack)
    key = stack.certificate.with_name("key.pem")
    service = start("--port", "0", "--ssl-certfile", str(stack.certificate), "--ssl-keyfile", str(key))
    assert any(word.startswith("https://") for word in service.wait_until_ready().curl_words())
    assert "renew it" not in service.log.read_text()


def test_a_certificate_that_expires_soon_is_warned_of(start: Start, tmp_path: Path) -> None:
    files = Authority(tmp_path).options()
    service = start("--port", "0", "--ssl-certfile", files["tls-cert-file"], "--ssl-keyfile", files["tls-key-file"])
    told = service.wait_until_ready().log.read_text()
    assert f"--ssl-certfile {files['tls-cert-file']}: the certificate expires on" in told


@pytest.mark.parametrize("content", ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_certificate_that_is_not_pem_is_refused(start: Start, tmp_path: Path, content: str) -> None:
    file = tmp_path / "certificate.pem"
    file.write_text(content)
    service = start("--ssl-certfile", str(file), "--ssl-keyfile", str(file))
    assert_refused(service, f"--ssl-keyfile {file}: expected a certificate and its key in PEM files")
    assert_refused(start("--ssl-keyfile", str(file)), f"--ssl-keyfile {file}: expected a certificate and its key")


# Ends


HALF_A_REQUEST = (
    "POST /oauth2/v1/token HTTP/1.1",
    "Host: here",
    "Content-Type: application/x-www-form-urlencoded",
    "Content-Length: 19",
    "Expect: 100-continue",
    "",
    "grant_type",
)


def send_half_a_request(address: str) -> socket.socket:
    """A request in progress: the service has read its head and waits for the rest of its body."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=MAX_WAIT_SECONDS)
    connection.sendall("\r\n".join(HALF_A_REQUEST).encode())
    assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    return connection


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
@pytest.mark.clause("decided-embedded-store", "decided-clean-stop")
def test_a_signal_lets_requests_finish_and_then_stops_the_store(
    start_ready: Start, workers: str, number: signal.Signals
) -> None:
    service = start_ready("--workers", workers)
    with send_half_a_request(service.address) as connection:
        service.signal(number)
        wait_until(lambda: "Shutting down" in service.log.read_text())
        assert not service.store_is_gone()
        connection.sendall(b"=password")
        assert connection.recv(100).startswith(b"HTTP/1.1 4")
    assert service.wait() == 0
    assert service.store_is_gone()


@pytest.mark.clause("decided-clean-stop")
def test_a_second_ctrl_c_prints_no_traceback(start_ready: Start) -> None:
    service = start_ready()
    service.signal(signal.SIGINT)
    wait_until(lambda: "Shutting down" in service.log.read_text())
    service.signal(signal.SIGINT)
    assert service.wait() == 0
    assert "Traceback" not in service.log.read_text()
    assert read_events(service, "Application shutdown complete.")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_during_the_start_ends_it_cleanly(start: Start, number: signal.Signals, status: int) -> None:
    service = start("--port", "0")
    wait_until(lambda: (service.data_dir / "store.lock").exists())
    service.signal(number)
    assert service.wait() == status
    # A server that is being started may end only with its parent.
    wait_until(service.store_is_gone)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.clause("decided-embedded-store")
def test_sigkill_leaves_no_orphan(start_ready: Start, workers: str) -> None:
    service = start_ready("--workers", workers)
    address = service.address
    service.signal(signal.SIGKILL)
    assert service.wait() == -signal.SIGKILL
    wait_until(service.store_is_gone)
    wait_until(lambda: service.port_is_free(address))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.clause("decided-embedded-store")
def test_a_restart_keeps_the_data(start_ready: Start, number: signal.Signals) -> None:
    first = start_ready()
    key = (first.data_dir / "secret_key").read_bytes()
    with first.store() as store:
        store.set("test:survivor", "alive")
    first.signal(number)
    first.wait()
    # The new start waits for the old server itself.
    second = start_ready()
    with second.store() as store:
        assert store.get("test:survivor") == "alive"
    assert (second.data_dir / "secret_key").read_bytes() == key


def test_without_its_embedded_store_the_service_answers_503(start_ready: Start) -> None:
    service = start_ready()
    with service.store() as store:
        os.kill(store.info("server")["process_id"], signal.SIGKILL)
    wait_until(lambda: "the embedded store exited; restart the service" in service.log.read_text())
    wait_until(lambda: service.get("/readyz") == 503)


def find_workers(service: Service) -> list[int]:
    """Return the process ids of all workers that were ever started, in the order of their start."""
    return [int(pid) for pid in re.findall(r"Started server process \[(\d+)\]", service.log.read_text())]


def test_a_worker_that_died_is_replaced(start_ready: Start) -> None:
    service = start_ready("--workers", "2")
    os.kill(find_workers(service)[0], signal.SIGKILL)
    wait_until(lambda: len(find_workers(service)) == 3)
    assert service.get("/readyz") == 200


def test_sighup_ends_no_worker(start_ready: Start) -> None:
    """When a terminal ends, all processes of its group get the signal at once."""
    service = start_ready("--workers", "2")
    before = find_workers(service)
    wait_until(lambda: all(handles_signal(worker, signal.SIGHUP) for worker in before))
    for worker in before:
        os.kill(worker, signal.SIGHUP)

    assert service.get("/readyz") == 200
    assert all(Path(f"/proc/{worker}/cmdline").read_bytes() for worker in before)
    assert find_workers(service) == before


def handles_signal(process_id: int, number: signal.Signals) -> bool:
    """Return True if the process ignores or handles this signal. Otherwise the system would end the process."""
    status = Path(f"/proc/{process_id}/status").read_text()
    masks = re.findall(r"^Sig(?:Ign|Cgt):\s+([0-9a-f]+)$", status, re.MULTILINE)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


@pytest.mark.long
def test_hanging_worker_delays_a_restart_for_a_bounded_time(start_ready: Start) -> None:
    service = start_ready("--workers", "2")
    stopped_worker = find_workers(service)[0]
    os.kill(stopped_worker, signal.SIGSTOP)

    service.signal(signal.SIGHUP)

    wait_until(lambda: "a worker did not stop in time; killing it" in service.log.read_text())
    wait_until(lambda: len(find_workers(service)) == 4)
    wait_until(lambda: not Path(f"/proc/{stopped_worker}").exists())
    assert service.get("/readyz") == 200


SEED = "clients:\n  - client_id: shop\n    client_name: Shop\n"


@pytest.mark.clause("decided-readyz", "decided-healthz")
def test_broken_seed_file_does_not_stop_a_new_worker(start_ready: Start, tmp_path: Path) -> None:
    seed = tmp_path / "seed.yaml"
    seed.write_text(SEED)
    service = start_ready(WEB_CONCURRENCY="2", TOKEN_SERVICE_SEED_FILE=str(seed))
    wait_until(lambda: service.log.read_text().count("is loaded; entries") == 2)

    seed.write_text("clients:\n  - client_idd: shop\n")
    os.kill(find_workers(service)[0], signal.SIGKILL)
    wait_until(lambda: len(find_workers(service)) == 3)
    wait_until(lambda: "the seed file could not be applied" in service.log.read_text())
    wait_until(lambda: service.get("/readyz") == 503)
    wait_until(lambda: service.get("/readyz") == 200)
    assert [service.get("/healthz") for _ in range(50)] == [200] * 50

    seed.write_text(SEED)
    wait_until(lambda: service.log.read_text().count("is loaded; entries") == 3)
    wait_until(lambda: [service.get("/readyz") for _ in range(50)] == [200] * 50)
    assert service.process.poll() is None
    assert len(find_workers(service)) == 3


def test_an_argument_that_would_print_requests_is_refused(start: Start) -> None:
    assert_refused(start("--access-log"), "query strings")


def test_keep_alive_has_one_setting(start: Start) -> None:
    assert_refused(start("--timeout-keep-alive", "5"), "TOKEN_SERVICE_KEEP_ALIVE")


def test_workers_that_cannot_start_are_given_up(start: Start) -> None:
    service = start("--port", "0", "--workers", "2", "--http", "no_such_module:Protocol")
    assert service.wait() == 1
    assert 'Could not import module "no_such_module"' in service.log.read_text()
    assert service.store_is_gone()


def test_a_certificate_that_cannot_be_read_is_refused(start: Start) -> None:
    assert_refused(start("--ssl-certfile", "missing.pem"), "--ssl-certfile missing.pem: expected a certificate and its")
