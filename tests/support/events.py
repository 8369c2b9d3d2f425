"""The security events that the service in this process has logged."""

from __future__ import annotations

import io
import json
from typing import Any

from service.observability.audit import KINDS

_OF_EVERY_LINE = ("event", "level", "logger", "timestamp")


def events_of(json_logs: io.StringIO) -> list[tuple[str, dict[str, Any]]]:
    """Return each event since the last call with its fields.

    The fields and the level must be those that the event has in `KINDS`.
    """
    written = json_logs.getvalue()
    json_logs.seek(0)
    json_logs.truncate()
    lines = [json.loads(line) for line in written.splitlines()]
    return [_check(line) for line in lines if line["logger"] == "service.audit"]


def _check(line: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    event: Any = line["event"]
    kind = KINDS[event]
    fields = {name: value for name, value in line.items() if name not in _OF_EVERY_LINE}
    assert line["level"] == ("warning" if kind.level > 20 else "info"), line
    assert set(fields) <= set(kind.fields), line
    assert "" not in fields.values(), line
    return event, fields
