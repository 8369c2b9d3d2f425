"""The log: one event a line on stderr, in one form for the service and for libraries.

A line that is written during a request with a trace has the `trace_id` of the caller's header `traceparent`. The
service starts no trace, exports no spans, and passes no trace on.

Clauses: W3C Trace Context §3.2 (the header traceparent)
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from types import TracebackType
from typing import Final

import msgspec

from service.protocol.grammar import make_printable

MAX_LINE_BYTES: Final = 1024
"""The greatest length of a line, not counting the trace of an exception."""

MAX_TRACE_LINES: Final = 60
MAX_TRACE_LINE_LENGTH: Final = 300

_FIELD_LENGTHS: Final = (400, 200, 100, 50, 20, 8)
"""The lengths to which the texts of an overlong line are cut. The first length with which the line fits is used.

A character takes twelve bytes at most: a surrogate pair of two escapes.
"""

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

RECORD_FIELDS: Final = "fields"
"""The attribute of a log record that holds the fields of an event."""

_AMBIGUOUS: Final = re.compile(r"[\s='\"]|^$")

_TRACEPARENT: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

_trace_id: ContextVar[str | None] = ContextVar("trace_id", default=None)


class EventLog:
    """A logger for events with named fields. Every line of the service that has fields is written by one.

    If the log is JSON and has no second handler, `write` skips the log record and the formatter. The line of a refresh
    then takes 3.5 µs instead of 7.4, a twentieth of a refresh. tests/process/test_logs.py holds both ways equal.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._logger = logging.getLogger(name)

    def shows(self, level: int) -> bool:
        return self._logger.isEnabledFor(level)

    def write(self, level: int, event: str, fields: Mapping[str, object]) -> None:
        """Write the event with its fields, at a level of the module logging."""
        if not self._logger.isEnabledFor(level):
            return
        match logging.root.handlers:
            case [_JsonHandler() as handler]:
                handler.write_event(self._name, level, event, fields)
            case _:
                self._logger.log(level, event, extra={RECORD_FIELDS: fields})

    def info(self, event: str, **fields: object) -> None:
        self.write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self.write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self.write(logging.ERROR, event, fields)


class _JsonHandler(logging.Handler):
    """A handler that passes each event to `write_line` as a JSON object on a line."""

    def __init__(self, write_line: Callable[[bytes], object]) -> None:
        super().__init__()
        self._write_line = write_line

    def emit(self, record: logging.LogRecord) -> None:
        """Write the event with the trace of its exception. A line that cannot be written raises nothing."""
        try:
            event = _collect_fields(record)
            if record.exc_info:
                event["exception"] = "\n".join(_list_trace_lines(record.exc_info))
            self._write_line(_bound(event)[1] + b"\n")
        except Exception:
            self.handleError(record)

    def write_event(self, name: str, level: int, event: str, fields: Mapping[str, object]) -> None:
        """Write the line that `emit` would write for a record of this event."""
        try:
            self._write_line(_bound(_name_event(fields, event, level, name, time.time_ns() // 1_000))[1] + b"\n")
        except Exception:
            self.handleError(logging.LogRecord(name, level, "", 0, event, (), None))


class _ConsoleFormatter(logging.Formatter):
    """A line for people: time, level, event, logger and fields.

    Control characters are escaped, so that text from a caller can neither begin a line nor control the terminal. A
    value that holds a space, a quote or `=` is quoted, so that it cannot look like further fields. A trace has lines of
    code but no values, which may be passwords and tokens.
    """

    def format(self, record: logging.LogRecord) -> str:
        shown = {name: _show(value) for name, value in _collect_fields(record).items()}
        event, _ = _bound(shown)
        fields = dict(event)
        text, level, logger, timestamp = (fields.pop(name) for name in ("event", "level", "logger", "timestamp"))
        named = [f"{name}={_quote(str(value))}" for name, value in fields.items()]
        line = " ".join([f"{timestamp} [{level:<8}] {text:<30} [{logger}]", *named])
        trace = _list_trace_lines(record.exc_info) if record.exc_info else []
        return "\n".join([line, *map(make_printable, trace)])


def write_to_stderr(line: bytes) -> None:
    """Write the line with one system call, so that no buffer mixes it with lines of other processes."""
    while line:
        try:
            line = line[os.write(2, line) :]
        except BlockingIOError:  # a full pipe that another program has made non-blocking
            select.select([], [2], [])


def configure_logging(level: str, log_format: str, write_line: Callable[[bytes], object] = write_to_stderr) -> None:
    """Configure the logs of a process or worker. `log_format` is `json`, or `console`, which ignores `write_line`."""
    handler: logging.Handler = _JsonHandler(write_line)
    if log_format == "console":
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_ConsoleFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    _take_over_uvicorn()
    # httpcore2 would log requests to identity providers, python_multipart each empty field of a stranger's form.
    for name in ("httpcore2", "python_multipart"):
        logging.getLogger(name).setLevel(logging.WARNING)
    _disable_unused_record_fields()


def _take_over_uvicorn() -> None:
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    # The access log of uvicorn would print query strings, and with them codes and states.
    logging.getLogger("uvicorn.access").disabled = True


def _disable_unused_record_fields() -> None:
    """Do not look up the line of code, the thread and the process of a line. It would be half of what a line costs."""
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _collect_fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields of the event, then its name, level, logger, time and trace id, if there is one."""
    fields: Mapping[str, object] = getattr(record, RECORD_FIELDS, {})
    time_us = round(record.created * 1_000_000)
    return _name_event(fields, record.getMessage(), record.levelno, record.name, time_us)


def _name_event(fields: Mapping[str, object], event: str, level: int, logger: str, time_us: int) -> dict[str, object]:
    second, microsecond = divmod(time_us, 1_000_000)
    timestamp = f"{_format_second(second)}.{microsecond:06}Z"
    name = logging.getLevelName(level).lower()
    named = {**fields, "event": event, "level": name, "logger": logger, "timestamp": timestamp}
    trace_id = find_trace_id()
    if trace_id is not None:
        named["trace_id"] = trace_id
    return named


@lru_cache(1)
def _format_second(second: int) -> str:
    """Return the date and the time in UTC. Most lines are written in the second of the line before."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _show(value: object) -> str:
    return make_printable(value if isinstance(value, str) else repr(value))


def _quote(shown: str) -> str:
    return repr(shown) if _AMBIGUOUS.search(shown) else shown


def _list_trace_lines(exc_info: _ExcInfo) -> list[str]:
    """Return the lines of a trace: the last ones if there are many, each of a bounded length."""
    lines = "".join(traceback.format_exception(*exc_info)).rstrip().split("\n")
    shown = lines if len(lines) <= MAX_TRACE_LINES else ["…", *lines[-MAX_TRACE_LINES:]]
    return [shorten(line, MAX_TRACE_LINE_LENGTH) for line in shown]


def _bound(event: Mapping[str, object]) -> tuple[Mapping[str, object], bytes]:
    """Return the event and its JSON. If the line would be longer than MAX_LINE_BYTES, the texts are shortened.

    The trace of an exception is left unchanged and does not count.
    """
    line = _encode(event)
    most_bytes = MAX_LINE_BYTES + (len(_encode({"": event["exception"]})) if "exception" in event else 0)
    for length in _FIELD_LENGTHS:
        if len(line) <= most_bytes:
            break
        event = {
            name: shorten(value, length) if isinstance(value, str) and name != "exception" else value
            for name, value in event.items()
        }
        line = _encode(event)
    return event, line


def _encode(event: Mapping[str, object]) -> bytes:
    line = msgspec.json.encode(event, enc_hook=repr)
    return line if line.isascii() and b"\x7f" not in line else escape_json(line.decode()).encode()


def shorten(text: str, most: int) -> str:
    """Return the text, or its first `most` characters followed by an ellipsis."""
    return text if len(text) <= most else f"{text[:most]}…"


def escape_json(text: str) -> str:
    """Return the same JSON, with escapes for characters that end a line (U+2028) or control a terminal (U+009B)."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def use_trace(traceparents: Sequence[str]) -> None:
    """Set the trace of the work in this task, and in the tasks that it starts from now on.

    A header that is malformed or repeated names no trace. A request without a trace clears the context variable, since
    the task of a pipelined request inherits the context of the request before it.
    """
    found = _TRACEPARENT.fullmatch(traceparents[0]) if len(traceparents) == 1 else None
    _trace_id.set(None if found is None else found[1])


def find_trace_id() -> str | None:
    """Return the trace id of this task's request, or None if the request has no trace."""
    return _trace_id.get()
