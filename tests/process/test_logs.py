import fcntl
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.observability.logs import RECORD_FIELDS, EventLog, configure_logging, write_to_stderr


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("uvicorn.access").disabled = False


def last_event(capfd: pytest.CaptureFixture[str]) -> dict[str, object]:
    event = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert isinstance(event, dict)
    return event


def test_each_line_has_its_own_time_in_microseconds(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    expected = {
        1_699_999_999.999998: "2023-11-14T22:13:19.999998Z",
        1_700_000_000.0: "2023-11-14T22:13:20.000000Z",
        1_700_000_000.000007: "2023-11-14T22:13:20.000007Z",
        1_699_999_999.5: "2023-11-14T22:13:19.500000Z",
        4_102_444_800.25: "2100-01-01T00:00:00.250000Z",
    }
    for created, timestamp in expected.items():
        record = logging.makeLogRecord({"msg": "line", "levelno": logging.INFO, "created": created})
        logging.root.handlers[0].emit(record)
        assert last_event(capfd)["timestamp"] == timestamp


def test_uvicorns_own_access_log_is_off(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging("debug", "json")
    logging.getLogger("uvicorn.access").info("GET /authorization/?code=secret")
    assert capfd.readouterr().err == ""


def test_no_value_looks_like_further_fields_on_the_console(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "console")
    EventLog("service.access").info("request", path="/x status=200 reason=none", status=404, agent='a"b', empty="")
    line = capfd.readouterr().err.rstrip()
    assert line.endswith("""path='/x status=200 reason=none' status=404 agent='a"b' empty=''""")


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_trace_shows_no_values(capfd: pytest.CaptureFixture[str], log_format: str) -> None:
    """The values of variables can be passwords and tokens."""

    def check(password: str) -> None:
        raise RuntimeError("broken")

    configure_logging("info", log_format)
    try:
        check("-".join(("correct", "horse")))
    except RuntimeError:
        logging.getLogger("service.test").exception("failed")
    written = capfd.readouterr().err
    assert "RuntimeError: broken" in written
    assert "correct-horse" not in written


def test_errors_cannot_send_terminal_escapes(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "console")
    try:
        raise RuntimeError("name \x1b[2J")
    except RuntimeError:
        logging.getLogger("service.test").exception("failed")
    assert "name \\x1b[2J" in capfd.readouterr().err


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_names_cannot_forge_lines_or_terminal_escapes(capfd: pytest.CaptureFixture[str], log_format: str) -> None:
    name = "a\x1bb\x7fc\x85d\x9be\u2028f\u202eg\U000e0001h"
    configure_logging("info", log_format)
    EventLog("service.test").info("request", username=name)
    written = capfd.readouterr().err
    assert written.removesuffix("\n").isprintable()
    if log_format == "json":
        assert json.loads(written)["username"] == name


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL])
def test_the_short_way_and_the_long_one_write_the_same_line(capfd: pytest.CaptureFixture[str], level: int) -> None:
    fields = {"username": "a\x1bb\u2028é", "port": 8000, "odd": object, "ms": 0.5}
    configure_logging("info", "json")
    EventLog("service.test").write(level, "started\nnow", fields)
    logging.getLogger("service.test").log(level, "started\nnow", extra={RECORD_FIELDS: fields})
    short, long = (
        re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "now", line) for line in capfd.readouterr().err.splitlines()
    )
    assert short == long
    assert '"timestamp":"now"' in short


def refuse(line: bytes) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(("write_line", "username"), [(refuse, "alice"), (write_to_stderr, "a\udc80")])
def test_unwritable_log_line_is_ignored(
    capfd: pytest.CaptureFixture[str], write_line: Callable[[bytes], None], username: str
) -> None:
    configure_logging("info", "json", write_line)
    EventLog("service.test").write(logging.INFO, "started", {"username": username})
    assert "Logging error" in capfd.readouterr().err


def test_a_full_pipe_that_does_not_block_loses_no_line() -> None:
    """Another program that shares the pipe can make it so. A trace is longer than the pipe, and is written in parts."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    stderr = os.dup(2)
    with os.fdopen(reader) as pipe, ThreadPoolExecutor() as threads:
        lines = threads.submit(pipe.readlines)
        os.dup2(writer, 2)
        os.close(writer)
        configure_logging("info", "json")
        for number in range(50):
            EventLog("service.test").info("request", number=number)
            logging.getLogger("service.test").error("failed", exc_info=RuntimeError("\n".join(["x" * 200] * 50)))
        os.dup2(stderr, 2)
        os.close(stderr)
        events = [json.loads(line) for line in lines.result()]

    assert [event["number"] for event in events[::2]] == list(range(50))
    assert all(len(event["exception"]) > 4096 for event in events[1::2])


CONTROLS = "\x7f" * 5_000
WIDE = "\U000e0001é€" * 2_000


@pytest.mark.clause("decided-log-lines-bounded")
@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize("text", [CONTROLS, WIDE, '"\\' * 5_000, "a" * 20_000], ids=["controls", "wide", "quotes", "a"])
def test_no_line_is_longer_than_a_kibibyte(capfd: pytest.CaptureFixture[str], log_format: str, text: str) -> None:
    configure_logging("info", log_format)
    EventLog("service.test").write(logging.INFO, "request", {"path": text})
    EventLog("service.test").write(logging.INFO, "request", {f"field{number}": text for number in range(8)})
    logging.getLogger("library").warning("it says %s", text)
    EventLog("service.test").info("request", path=text)
    lines = capfd.readouterr().err.splitlines()

    assert len(lines) == 4
    assert all(len(line.encode()) <= 1024 for line in lines)
    assert all("…" in line for line in lines)


@pytest.mark.clause("decided-log-lines-bounded")
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_trace_is_bounded_and_ends_with_the_error(capfd: pytest.CaptureFixture[str], log_format: str) -> None:
    def fail(depth: int) -> None:
        if depth:
            (lambda: fail(depth - 1))()
        raise RuntimeError(CONTROLS)

    configure_logging("info", log_format)
    try:
        fail(100)
    except RuntimeError:
        logging.getLogger("service.test").exception("failed")
    written = capfd.readouterr().err

    assert "failed" in written
    assert "RuntimeError: " in written
    assert len(written.encode()) < 20_000
