"""Logs: one event a line, on stderr, ours and those of every library alike."""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

__all__ = ["configure_logging"]

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
    return (_show_control_characters, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()))


def _show_control_characters(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """What somebody chose as a name must neither begin a line of its own nor speak to the terminal.

    A trace has lines of its own; JSON escapes all of this by itself.
    """
    return {name: value if name == "exception" else _escape(value) for name, value in event.items()}


def _escape(value: Any) -> Any:
    if not isinstance(value, str) or value.isprintable():
        return value
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)


def _render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    return msgspec.json.encode(event, enc_hook=_render_unknown).decode()


def _render_unknown(value: Any) -> str:
    return repr(value)
