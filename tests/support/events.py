"""The security events that the service in this process has logged."""

import io
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from service.observability.audit import get_level
from service.protocol.scope import MAIN_REALM
from service.protocol.user import User
from tests.support.servers import CHECKOUT

_OF_EVERY_LINE = ("event", "level", "logger", "timestamp")
_OF_A_REQUEST = ("method", "path", "status", "ms")


@cache
def read_table() -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Return level, share in the stream, and fields of each event in docs/reference/events-and-logs.md."""
    text = (CHECKOUT / "docs" / "reference" / "events-and-logs.md").read_text()
    section = text.partition("\n## Security events\n")[2].partition("\n## ")[0]
    return {event: row for part in section.split("\n### ")[1:] for event, row in _read_group(part)}


def _read_group(part: str) -> Iterator[tuple[str, tuple[str, str, tuple[str, ...]]]]:
    """Yield the events of a group. Parentheses after a name hold for it, and for names before it that have none."""
    [shared] = re.findall(r"^Fields: ((?:`\w+`(?:, )?)+)", part, re.MULTILINE)
    for item in re.findall(r"^- (`.+?):\s", part, re.MULTILINE | re.DOTALL):
        for names, differs in re.findall(r"([^()]+)(?:\((.+?)\))?", item):
            own, _, lacking = differs.partition("without")
            fields = {*_list_names(shared), *_list_names(own)} - {*_list_names(lacking)}
            share = "" if "log only" in differs else "always" if "always" in differs else "yes"
            for event in _list_names(names):
                yield event, ("warning" if "warning" in differs else "info", share, tuple(fields))


def _list_names(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


def events_of(json_logs: io.StringIO) -> list[tuple[str, dict[str, Any]]]:
    """Return each event since the last call with its fields, which must be those that the documents list.

    The fields of the request that caused the event are left out, and `sub`, which must be that of the user.
    """
    written = json_logs.getvalue()
    json_logs.seek(0)
    json_logs.truncate()
    lines = [json.loads(line) for line in written.splitlines()]
    return [_check(line) for line in lines if line["logger"] == "service.audit"]


def _check(line: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    event: Any = line["event"]
    documented = read_table()[event][2]
    fields = {name: value for name, value in line.items() if name not in (*_OF_EVERY_LINE, *_OF_A_REQUEST)}
    if "status" in line and "reason" not in documented:
        fields.pop("reason", None)
    assert line["level"] == ("warning" if get_level(event) > 20 else "info"), line
    assert set(fields) <= {*documented, "sub"}, line
    assert "" not in fields.values(), line
    if "username" in fields:
        sub, is_external = fields.pop("sub"), fields["realm"] != MAIN_REALM
        assert not is_external or sub == User(realm=fields["realm"], username=fields["username"]).subject, line
    return event, fields
