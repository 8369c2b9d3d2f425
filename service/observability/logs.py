"""Logs: one event a line, on stderr, ours and those of every library alike."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from service.protocol.grammar import make_printable

MAX_LINE_BYTES: Final = 1024
"""The greatest length of a line, without the trace of an exception in it."""

MAX_TRACE_LINES: Final = 60
MAX_TRACE_LINE_BYTES: Final = 300

_FIELD_BYTES: Final = (800, 400, 200, 100, 50)
"""The lengths to which the texts of a line that is too long are cut; the first one with which the line fits counts."""

SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.PositionalArgumentsFormatter(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


class EventLog:
    """For what is written at every request, and is fields already.

    Where the log is JSON and nobody else listens it takes a short way, for a fifth of what the long one costs.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._logger = logging.getLogger(name)
        self._long_way = structlog.get_logger(name)

    def shows(self, level: int) -> bool:
        return self._logger.isEnabledFor(level)

    def write(self, level: int, event: str, fields: Mapping[str, object]) -> None:
        if not self._logger.isEnabledFor(level):
            return
        match logging.root.handlers:
            case [_JsonHandler() as handler]:
                handler.write_event(self._name, level, event, fields)
            case _:
                self._long_way.log(level, event, **fields)


class _JsonHandler(logging.StreamHandler[TextIO]):
    def write_event(self, name: str, level: int, event: str, fields: Mapping[str, object]) -> None:
        """The line that the processors would make of it; like theirs, one that cannot be written harms nobody."""
        when = f"{datetime.now(UTC).isoformat()[:-6]}Z"
        named = {"event": event, "level": logging.getLevelName(level).lower(), "logger": name, "timestamp": when}
        self.acquire()
        try:
            self.stream.write(f"{_encode_line({**fields, **named})}\n")
            self.stream.flush()
        except Exception:
            self.handleError(logging.LogRecord(name, level, "", 0, event, (), None))
        finally:
            self.release()


def configure_logging(level: str, log_format: str) -> None:
    """For this process; each worker calls it again. `log_format`: `json` or `console`."""
    handler = (_JsonHandler if log_format == "json" else logging.StreamHandler)(sys.stderr)
    handler.setFormatter(_make_formatter(log_format))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    _take_over_uvicorn()
    _quieten_http_client()
    _look_nothing_up_in_vain()
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _take_over_uvicorn() -> None:
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    # It would print query strings, and with them codes and states.
    logging.getLogger("uvicorn.access").disabled = True


def _quieten_http_client() -> None:
    """At its lowest levels it would write down what organisations are sent and answer."""
    logging.getLogger("httpcore2").setLevel(logging.WARNING)


def _look_nothing_up_in_vain() -> None:
    """Which line of code, thread and process a line comes from is not shown, and would be half of what it costs."""
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _make_formatter(log_format: str) -> logging.Formatter:
    last = _console() if log_format == "console" else _json()
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=SHARED,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )


def _json() -> tuple[Processor, ...]:
    return (structlog.processors.ExceptionRenderer(_render_trace), _render_json)


def _console() -> tuple[Processor, ...]:
    renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_write_trace)
    return (_show_control_characters, renderer)


def _write_trace(stream: TextIO, exc_info: ExcInfo) -> None:
    """Lines of code and nothing of what they worked on: the library's own would show passwords and tokens."""
    stream.write("".join(f"\n{make_printable(line)}" for line in _list_trace_lines(exc_info)))


def _list_trace_lines(exc_info: ExcInfo) -> list[str]:
    """Return the lines of a trace: the last ones where there are many, each of a bounded length."""
    lines = "".join(traceback.format_exception(*exc_info)).rstrip().split("\n")
    shown = lines if len(lines) <= MAX_TRACE_LINES else ["…", *lines[-MAX_TRACE_LINES:]]
    return [shorten(line, MAX_TRACE_LINE_BYTES) for line in shown]


def _render_trace(exc_info: ExcInfo) -> str:
    return "\n".join(_list_trace_lines(exc_info))


def _show_control_characters(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """What somebody chose as a name must neither begin a line of its own nor speak to the terminal."""
    exc_info = {"exc_info": event.pop("exc_info")} if "exc_info" in event else {}
    shown = {name: make_printable(value) if isinstance(value, str) else value for name, value in event.items()}
    bounded, _ = _bound(shown)
    return {**bounded, **exc_info}


def _render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    return _encode_line(event)


def _encode_line(event: Mapping[str, object]) -> str:
    _, line = _bound(event)
    return line


def _bound(event: Mapping[str, object]) -> tuple[Mapping[str, object], str]:
    """Return the event and its JSON, its texts shortened where the line would be longer than MAX_LINE_BYTES.

    The trace of an exception is left as it is, and does not count.
    """
    line = _encode(event)
    if line.isascii() and len(line) <= MAX_LINE_BYTES:
        return event, line
    most_bytes = MAX_LINE_BYTES + (len(_encode({"": event["exception"]}).encode()) if "exception" in event else 0)
    for field_bytes in _FIELD_BYTES:
        if len(line.encode()) <= most_bytes:
            break
        event = {
            name: shorten(value, field_bytes) if isinstance(value, str) and name != "exception" else value
            for name, value in event.items()
        }
        line = _encode(event)
    return event, line


def _encode(event: Mapping[str, object]) -> str:
    line = msgspec.json.encode(event, enc_hook=_render_unknown)
    return line.decode() if line.isascii() and b"\x7f" not in line else escape_json(line.decode())


def shorten(text: str, most_bytes: int) -> str:
    """Return the text, or as much of its beginning as is written with this many bytes, and then an ellipsis.

    Counted is what a line of the log has for it, in which a control character takes six bytes or more.
    """
    if len(text) * _MAX_WRITTEN_BYTES <= most_bytes:
        return text
    left = most_bytes
    for index, character in enumerate(text):
        left -= _count_written_bytes(character)
        if left < 0:
            return f"{text[:index]}…"
    return text


_MAX_WRITTEN_BYTES: Final = 12
"""The length of the longest character: a surrogate pair of two escapes."""


def _count_written_bytes(character: str) -> int:
    if character.isprintable() and character not in '"\\':
        return len(character.encode())
    return len(json.dumps(character)) - 2


def escape_json(text: str) -> str:
    """The same JSON, with an escape for what ends a line elsewhere (U+2028) and for what terminals obey (U+009B)."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _render_unknown(value: Any) -> str:
    return repr(value)
