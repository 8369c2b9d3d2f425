"""Logs: one event a line, on stderr, ours and those of every library alike."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from typing import Any, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from service.protocol.grammar import make_printable

__all__ = ["configure_logging", "escape_json"]

SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.PositionalArgumentsFormatter(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def configure_logging(level: str, log_format: str) -> None:
    """For this process; each worker calls it again. `log_format`: `json` or `console`."""
    handler = logging.StreamHandler(sys.stderr)
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
    last = _console() if log_format == "console" else (structlog.processors.format_exc_info, _render_json)
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=SHARED,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )


def _console() -> tuple[Processor, ...]:
    renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_write_trace)
    return (_show_control_characters, renderer)


def _write_trace(stream: TextIO, exc_info: ExcInfo) -> None:
    """Lines of code and nothing of what they worked on: the library's own would show passwords and tokens."""
    lines = "".join(traceback.format_exception(*exc_info)).rstrip().split("\n")
    stream.write("".join(f"\n{make_printable(line)}" for line in lines))


def _show_control_characters(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """What somebody chose as a name must neither begin a line of its own nor speak to the terminal."""
    return {name: make_printable(value) if isinstance(value, str) else value for name, value in event.items()}


def _render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    return escape_json(msgspec.json.encode(event, enc_hook=_render_unknown).decode())


def escape_json(text: str) -> str:
    """The same JSON, with an escape for what ends a line elsewhere (U+2028) and for what terminals obey (U+009B)."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _render_unknown(value: Any) -> str:
    return repr(value)
