"""The table of security events in docs/operations/monitoring.md is what the service tells."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator

from service.observability.audit import KINDS, LIMIT_10, LIMIT_60, LIMIT_600, LOG_ONLY, Fields
from tests.support.servers import CHECKOUT

CONSOLE = re.compile(r"client_secret_rotated|user_(?:password_set|disabled|enabled)|.*_deleted|.*_by_console")
"""The events that only the console reports."""
SHARES = {LOG_ONLY: "", LIMIT_10: "few", LIMIT_60: "some", LIMIT_600: "all"}


def read_table() -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Level, share in the stream, and fields of each event."""
    text = (CHECKOUT / "docs" / "operations" / "monitoring.md").read_text()
    section = text.partition("### Security events")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:3] == "| `"]
    return {
        event: (level, share, tuple(re.findall(r"`(\w+)`", fields)))
        for events, level, share, fields, *_ in rows
        for event in re.findall(r"`(\w+)`", events)
    }


def test_every_event_stands_in_the_docs_with_its_level_and_its_fields() -> None:
    told = {
        event: ("warning" if kind.level == logging.WARNING else "info", SHARES[kind.entries_a_minute], kind.fields)
        for event, kind in KINDS.items()
    }
    told["events_lost"] = ("warning", "all", KINDS["events_lost"].fields)  # the trail writes it there by itself

    assert read_table() == told


RECORDERS = ("record_event", "make_event", "record", "record_request_event", "_record", "_changing")


def find_recorded_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names of events in calls that record one, and in the tables of such names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in RECORDERS:
            values = node.args
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.target).endswith("_EVENTS"):
            values = node.value.values if isinstance(node.value, ast.Dict) else []
        else:
            continue
        yield from (value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str))


def test_every_recorded_name_has_a_kind() -> None:
    trees = {path: ast.parse(path.read_text()) for path in (CHECKOUT / "service").rglob("*.py")}
    recorded = {name: path.name for path, tree in trees.items() for name in find_recorded_names(tree)}

    assert {"tokens_issued", "refresh_token_replayed", "realm_created", "consent_denied", "user_enabled"} <= set(
        recorded
    )
    assert not {name: path for name, path in recorded.items() if name not in KINDS}


OF_ANY_EVENT = {"trace_id"}
"""The fields that any event may have in addition to those of its kind."""


def test_every_field_of_a_kind_is_declared() -> None:
    assert {field for kind in KINDS.values() for field in kind.fields} | OF_ANY_EVENT == set(Fields.__annotations__)


def test_every_name_is_told_somewhere() -> None:
    texts = {
        node.value
        for path in (CHECKOUT / "service").rglob("*.py")
        if path != CHECKOUT / "service" / "observability" / "audit.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }

    assert not [event for event in KINDS if event not in texts and not CONSOLE.fullmatch(event)]
